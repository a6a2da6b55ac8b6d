//! The structured-field vectors of `tests/vectors/`, each through the parsers here that read its type.
//!
//! Invariants:
//! - Every case is tried, and their number is fixed: a run over no cases fails.
//! - What must fail is refused. What is valid is accepted with the same value, unless it is past a limit of the protocol. Such
//!   exceptions are listed by name with a reason, and each must be one.
//! - The protocol is laxer in one place only: a bare run of some characters is an id.

use semel_core::header::{self, Attempt};
use semel_core::message::Headers;
use serde_json::{Value, json};
use sfv::{BareItem, Item, List, ListEntry, Parameters, Parser};

/// Later than every date of the vectors that the protocol can represent.
const NOW_MS: i64 = 999_999_999_999_999;

struct Case {
    name: String,
    lines: Vec<String>,
    must_fail: bool,
    can_fail: bool,
    /// The bare item of an item, or the members of a list.
    expected: Value,
}

impl Case {
    /// The value as a list in which each run of digits or letters is a string, because lists of this protocol hold only strings.
    fn of_strings(&self) -> String {
        let mut quoted = String::new();
        let mut was_word = false;
        for char in self.lines.join(", ").chars() {
            let is_word = char.is_ascii_alphanumeric();
            quoted.push_str(if is_word == was_word { "" } else { "\"" });
            quoted.push(char);
            was_word = is_word;
        }
        if was_word { quoted + "\"" } else { quoted }
    }

    fn headers(&self, name: &str) -> Headers {
        self.lines.iter().map(|line| (name, line.as_str())).collect()
    }
}

fn cases(file: &str, text: &str, count: usize) -> Vec<Case> {
    let parsed: Vec<Value> = serde_json::from_str(text).expect("JSON");
    assert_eq!(parsed.len(), count, "cases of {file}");
    let case = |case: &Value| Case {
        name: case["name"].as_str().expect("a name").to_owned(),
        lines: case["raw"].as_array().expect("lines").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        must_fail: case["must_fail"] == true,
        can_fail: case["can_fail"] == true,
        expected: if case["header_type"] == "item" { case["expected"][0].clone() } else { case["expected"].clone() },
    };
    let cases: Vec<Case> = parsed.iter().map(case).collect();
    assert!(cases.iter().all(|case| !case.lines.is_empty()), "{file}");
    cases
}

fn dates() -> Vec<Case> {
    cases("date.json", include_str!("../../vectors/date.json"), 17)
}

fn items() -> Vec<Case> {
    cases("item.json", include_str!("../../vectors/item.json"), 5)
}

fn lists() -> Vec<Case> {
    cases("list.json", include_str!("../../vectors/list.json"), 11)
}

fn parameters() -> Vec<Case> {
    cases("param-list.json", include_str!("../../vectors/param-list.json"), 20)
}

fn strings() -> Vec<Case> {
    cases("string.json", include_str!("../../vectors/string.json"), 14)
}

/// Checks cases against a parser. `exceptions`: the names of cases in which the protocol decides otherwise, and why.
fn check<T: PartialEq + std::fmt::Debug>(
    cases: &[Case],
    exceptions: &[(&str, &str)],
    parse: impl Fn(&Case) -> Option<T>,
    expected: impl Fn(&Case) -> Option<T>,
) {
    for case in cases {
        let parsed = parse(case);
        let should = if case.must_fail { None } else { expected(case) };
        let agrees = parsed == should || (case.can_fail && parsed.is_none());
        let exception = exceptions.iter().find(|(name, _)| *name == case.name);
        assert_eq!(agrees, exception.is_none(), "{}: {parsed:?}, not {should:?}; exception: {exception:?}", case.name);
    }
    for (name, _) in exceptions {
        assert!(cases.iter().any(|case| case.name == *name), "{name} is no case");
    }
}

fn text(case: &Case) -> Option<String> {
    case.expected.as_str().map(str::to_owned)
}

fn id(case: &Case) -> Option<String> {
    let attempt = Attempt::parse(&case.headers("idempotency-key"), NOW_MS).ok()?;
    attempt.id.map(|id| id.as_str().to_owned())
}

#[test]
fn an_idempotency_key_is_a_structured_field_string() {
    let tighter =
        [("empty string", "an id has at least one character"), ("long string", "an id has at most 255 characters")];
    check(&strings(), &tighter, id, text);
}

#[test]
fn a_principal_a_key_and_an_acknowledged_id_are_structured_field_strings() {
    let long = ("long string", "a principal and an id have at most 255 characters");
    let empty = ("empty string", "a key and an id have at least one character");
    let principal = |case: &Case| {
        let principal = header::principal(&case.headers("semel-principal")).ok()??;
        Some(principal.as_str().to_owned())
    };
    check(&strings(), &[long], principal, text);
    let key = |case: &Case| Some(header::key(&case.headers("semel-key")).ok()??.as_str().to_owned());
    check(&strings(), &[empty], key, text);
    let ack = |case: &Case| match header::acks(&case.headers("semel-ack")).ok()?.as_slice() {
        [only] => Some(only.id.as_str().to_owned()),
        _ => None,
    };
    check(&strings(), &[empty, long], ack, text);
    check(&strings(), &[], |case| header::unquoted(&case.lines.join(", ")), text);
}

#[test]
fn first_sent_is_a_structured_field_date() {
    let negative = "first-sent is not before 1970";
    let tighter =
        [("date - 1917-05-30 22:02:47", negative), ("interoperability min date - 0001-01-01 00:00:00", negative)];
    let first_sent = |case: &Case| Attempt::parse(&case.headers("semel-first-sent"), NOW_MS).ok()?.first_sent_s;
    check(&dates(), &tighter, first_sent, |case| case.expected["value"].as_i64());
}

#[test]
fn a_deadline_is_a_structured_field_integer() {
    let deadline = |case: &Case| Attempt::parse(&case.headers("semel-deadline"), NOW_MS).ok()?.deadline_ms;
    check(&items(), &[], deadline, |case| case.expected.as_i64());
}

#[test]
fn acknowledgements_are_a_structured_field_list() {
    let ids = |case: &Case| {
        let headers: Headers = [("semel-ack", case.of_strings())].into_iter().collect();
        let acks = header::acks(&headers).ok()?;
        Some(acks.into_iter().map(|ack| ack.id.as_str().to_owned()).collect::<Vec<_>>())
    };
    let members = |case: &Case| Some(case.expected.as_array()?.iter().map(|member| member[0].to_string()).collect());
    check(&lists(), &[], ids, members);
    // Unchanged, their members are not strings, or have parameters that the protocol doesn't know.
    for case in lists().iter().chain(&parameters()) {
        let acks = header::acks(&case.headers("semel-ack"));
        assert_eq!(acks.is_ok(), case.name == "empty list", "{}", case.name);
    }
}

#[test]
fn a_vector_of_another_type_is_no_idempotency_key_unless_it_is_a_bare_item() {
    for case in dates().iter().chain(&items()).chain(&lists()).chain(&parameters()) {
        let is_bare = case.name == "single item list";
        assert_eq!(id(case), is_bare.then(|| "42".to_owned()), "{}: the protocol takes bare ids", case.name);
    }
}

/// The library under these parsers reads every case completely, including parameters.
#[test]
fn the_structured_field_library_agrees_with_every_vector() {
    let item = |case: &Case| {
        let item: Item = Parser::new(&case.lines.join(", ")).parse().ok()?;
        assert!(item.params.is_empty());
        Some(value(&item.bare_item))
    };
    for cases in [dates(), items(), strings()] {
        check(&cases, &[], item, |case| Some(case.expected.clone()));
    }
    let list = |case: &Case| {
        let list: List = Parser::new(&case.lines.join(", ")).parse().ok()?;
        Some(Value::Array(list.iter().map(member).collect()))
    };
    for cases in [lists(), parameters()] {
        check(&cases, &[], list, |case| Some(case.expected.clone()));
    }
}

fn member(entry: &ListEntry) -> Value {
    match entry {
        ListEntry::Item(item) => json!([value(&item.bare_item), parameters_of(&item.params)]),
        ListEntry::InnerList(_) => panic!("no vector has an inner list"),
    }
}

fn parameters_of(parameters: &Parameters) -> Vec<Value> {
    parameters.iter().map(|(name, item)| json!([name.as_str(), value(item)])).collect()
}

/// A bare item, as the vectors write it.
fn value(item: &BareItem) -> Value {
    match item {
        BareItem::Integer(integer) => json!(i64::from(*integer)),
        BareItem::Decimal(decimal) => json!(f64::from(*decimal)),
        BareItem::String(string) => json!(string.as_str()),
        BareItem::Token(token) => json!({ "__type": "token", "value": token.as_str() }),
        BareItem::Boolean(boolean) => json!(boolean),
        BareItem::Date(date) => json!({ "__type": "date", "value": i64::from(date.unix_seconds()) }),
        BareItem::ByteSequence(_) | BareItem::DisplayString(_) => panic!("no vector has {item:?}"),
    }
}
