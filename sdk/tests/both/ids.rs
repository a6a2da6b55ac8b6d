//! Random ids.

use semel_sdk::random_id;
use std::collections::BTreeSet;
use wasm_bindgen_test::wasm_bindgen_test;

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|_| random_id().expect("there is randomness")).collect()
}

#[wasm_bindgen_test]
fn an_id_is_a_version_4_uuid_in_canonical_lower_case() {
    for id in ids(1_000) {
        assert_eq!(id.len(), 36, "{id}");
        for (place, char) in id.char_indices() {
            let is_right = match place {
                8 | 13 | 18 | 23 => char == '-',
                14 => char == '4',
                19 => matches!(char, '8' | '9' | 'a' | 'b'),
                _ => matches!(char, '0'..='9' | 'a'..='f'),
            };
            assert!(is_right, "{char} at {place} of {id}");
        }
    }
}

#[wasm_bindgen_test]
fn ten_thousand_ids_are_distinct() {
    assert_eq!(ids(10_000).into_iter().collect::<BTreeSet<_>>().len(), 10_000);
}

#[wasm_bindgen_test]
fn every_random_digit_of_an_id_takes_every_value() {
    let ids = ids(1_000);
    for place in (0..36).filter(|place| ![8, 13, 14, 18, 23].contains(place)) {
        let seen: BTreeSet<_> = ids.iter().filter_map(|id| id.chars().nth(place)).collect();
        assert_eq!(seen.len(), if place == 19 { 4 } else { 16 }, "at {place}");
    }
}
