//! Inputs with which a check failed once, kept so that it does not again.

use semel_properties::{engine, machine, sessions};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// The check itself was wrong: an id that failed to be stored kept its place in the order, and was then used, without an order,
/// by another call.
#[test]
fn an_id_that_could_not_be_stored_has_no_place_in_the_order_of_what_comes_later() {
    let input = "\
        0000002aa92fa9a90000a7292a0a0a240000a70a24ff000a555569696969696969a9a9a9a9a9ff100000002a2a000001ffff \
        00a7a7292aa9a9a9a9a9a9a9ff0900810000000009 \
    ";
    machine::check(&bytes(input));
}

/// A key that said 0 for an epoch was believed, and the row with that place could not be read again.
#[test]
fn a_session_takes_no_epoch_that_is_none() {
    let input = "\
        1608000000002d6400006aba0000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
        0000000000000000 \
    ";
    sessions::check(&bytes(input));
}

/// The check itself was wrong: it looked at a full key only once the refusal had swept it.
#[test]
fn a_key_that_was_full_may_refuse_and_have_room_after_that() {
    let input = "\
        160e012a13005a0d13310001044a09061100000000000647000131da00005c2a3e0100190400410000000000000006000106 \
        1300001573860000000051360100019fd7420305000001148601cd170002261e0000067e01009b000d0000000130e6e04716 \
        32017b42062100000001 \
    ";
    engine::check(&bytes(input));
}
