//! The form of batches and frames: how they are read and answered, and their limits.

use semel_core::header::{self, quoted};
use semel_core::id::Key;
use semel_core::message::Headers;
use semel_core::problem::Code;
use semel_core::server::Answer;
use semel_core::server::batch::{Answers, Batch, Element, first_frame};
use semel_core::server::config::{ANSWERS_BYTES_MAX, ELEMENTS_MAX};
use semel_core::server::edge::auth::{Asker, TOKEN_BYTES_MAX};
use semel_core::server::head::{HEADERS_MAX, URL_BYTES_MAX};
use semel_support::batches::{asker, at, count, limited, run, statuses};
use semel_support::{KEY, START_MS, START_S, World, post};
use serde_json::{Map, Value, json};

#[test]
fn a_batch_that_cannot_be_read_is_body_invalid_and_runs_nothing() {
    let mut world = World::new();
    let good = count("good");
    let bad = [
        json!({ "id": "a" }),
        json!({ "id": "a", "method": "POST" }),
        json!({ "id": "a", "method": "", "path": "/count" }),
        json!({ "id": "a", "method": "PO ST", "path": "/count" }),
        json!({ "id": "a", "method": "P".repeat(33), "path": "/count" }),
        json!({ "id": 1, "method": "POST", "path": "/count" }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "X-A": "1", "x-a": "2" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "Semel-Principal": "\"bob\"" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "Authorization": "Bearer b" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "": "1" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "x a": "1" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "x-a": "1\nsemel-principal:\"bob\"" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "x-a": " 1" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "x-a": "\u{2028}" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "semel-principal": "\"bob\"" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "semel-key": "\"b\"" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "idempotency-key": "b" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "authorization": "Bearer b" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "headers": { "cf-connecting-ip": "1.1.1.1" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "body": 5 }),
        json!({ "id": "a", "method": "POST", "path": "/count", "body": { "base64": "?" } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "body": { "base64": "AA==", "more": 1 } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "session": ["name", 1, 1, 0] }),
        json!({ "id": "a", "method": "POST", "path": "/count", "session": { "epoch": 1 } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "session": { "name": "s", "more": 1 } }),
        json!({ "id": "a", "method": "POST", "path": "/count", "more": 1 }),
        json!(["a", null, null, null, "POST", "/count", {}, null]),
        json!("a"),
        json!(null),
    ];
    for bad in bad {
        let refused = world.batch(&json!([good, bad])).expect_err("it can't be read");
        assert_eq!(refused.code, Code::BodyInvalid, "{bad}");
    }
    for bad in [json!({}), json!(5), json!([[good]])] {
        assert_eq!(world.batch(&bad).expect_err("no batch").code, Code::BodyInvalid, "{bad}");
    }
    for bad in ["", "[", "[]]", "[\"\\ud800\"]", "\u{feff}[]"] {
        let refused = Batch::parse(&key(), &Headers::new(), Some(bad.as_bytes())).expect_err(bad);
        assert_eq!(refused.code, Code::BodyInvalid, "{bad}");
    }
    assert_eq!((world.calls(), world.database.tables()), (0, Vec::new()));
}

#[test]
fn the_header_names_of_an_element_are_read_in_any_case() {
    let mut world = World::new();
    let typed =
        |name: &str| json!([{ "id": "a", "method": "POST", "path": "/count", "headers": { name: "text/plain" } }]);
    assert_eq!(statuses(&run(&mut world, &typed("Content-Type"))), ["executed"]);
    assert_eq!(statuses(&run(&mut world, &typed("content-type"))), ["replayed"], "it is the same request");
    world.send(&post("/count").id("a").header("Content-Type", "text/plain")).is_replayed(200);
    assert_eq!(world.effects(), 1);
}

fn key() -> Key {
    Key::new(KEY).expect("a key")
}

#[test]
fn a_batch_is_limited_in_elements_and_bytes_and_an_element_in_its_head() {
    let mut world = World::new();
    let many = |count: usize| Value::Array((0..count).map(|n| at(&format!("{n}"), "/echo")).collect());
    assert_eq!(run(&mut world, &many(ELEMENTS_MAX)).len(), ELEMENTS_MAX);
    assert_eq!(world.batch(&many(ELEMENTS_MAX + 1)).expect_err("too many").code, Code::TooLarge);
    assert_eq!(Batch::parse(&key(), &Headers::new(), None).expect_err("too large").code, Code::TooLarge);
    let bytes = |length: usize| format!("[{}]", " ".repeat(length - 2)).into_bytes();
    assert!(Batch::parse(&key(), &Headers::new(), Some(&bytes(1 << 20))).is_ok());
    let refused = Batch::parse(&key(), &Headers::new(), Some(&bytes((1 << 20) + 1))).expect_err("too large");
    assert_eq!(refused.code, Code::TooLarge);
    assert_eq!(run(&mut world, &json!([])), []);
    // The head of an element has the same limit as the head of any other request.
    let replies = run(&mut world, &json!([at("long", &format!("/{}", "x".repeat(9_000))), count("short")]));
    assert_eq!(statuses(&replies), ["too-large", "executed"]);
    let headed = |count: usize| {
        let headers: Map<String, Value> = (0..count).map(|n| (format!("x-{n}"), json!(""))).collect();
        json!([{ "id": format!("headed {count}"), "method": "POST", "path": "/count", "headers": headers }])
    };
    // One of the headers is the id.
    assert_eq!(statuses(&run(&mut world, &headed(HEADERS_MAX - 1))), ["executed"]);
    assert_eq!(statuses(&run(&mut world, &headed(HEADERS_MAX))), ["too-large"]);
    // Sent alone, each of these characters would be escaped as three bytes.
    let escaped = |count: usize| json!([at("escaped", &format!("/echo/{}", "^".repeat(count)))]);
    let most = (URL_BYTES_MAX - "/echo/".len()) / 3;
    assert_eq!(statuses(&run(&mut world, &escaped(most + 1))), ["too-large"]);
    assert_eq!(statuses(&run(&mut world, &escaped(most))), ["executed"]);
}

/// Each name is compared with those before it: a megabyte of names kept all keys of a process waiting for half a minute.
#[test]
fn an_element_with_far_too_many_headers_is_too_large_and_those_beyond_the_limit_are_not_read() {
    let mut headers: Map<String, Value> = (0..20_000).map(|n| (format!("x-{n}"), json!(""))).collect();
    headers.insert("y y".to_owned(), json!("malformed"));
    let crowded = json!({ "id": "crowded", "method": "POST", "path": "/count", "headers": headers });
    let mut world = World::new();
    assert_eq!(statuses(&run(&mut world, &json!([crowded, count("other")]))), ["too-large", "executed"]);
}

/// Bytes that are not text take a third more room when they are written.
#[test]
fn answers_that_have_no_room_once_they_are_encoded_are_unavailable() {
    let mut answers = Answers::default();
    for _ in 0..4 {
        let answer = Answer { status: 200, headers: Headers::new(), body: vec![0xff; 1 << 20], log: None };
        answers.add(answer, START_MS);
    }
    let text = answers.whole(None, START_MS);
    assert!(text.len() <= ANSWERS_BYTES_MAX, "{} bytes", text.len());
    let told: Vec<Value> = serde_json::from_str(&text).expect("an array");
    let told: Vec<_> = told.iter().map(|answer| answer["status"].as_i64()).collect();
    assert_eq!(told, [Some(200), Some(200), Some(503), Some(503)]);
}

#[test]
fn answers_without_room_are_unavailable_and_their_commit_stands() {
    let mut world = World::new();
    let elements: Vec<Value> = (0..8).map(|n| at(&format!("{n}"), "/large/1000000")).collect();
    let mut elements = Value::Array(elements);
    elements.as_array_mut().expect("an array").push(count("small"));
    let key = key();
    let alice = asker("alice");
    let batch = Batch::parse(&key, &Headers::new(), Some(elements.to_string().as_bytes())).expect("a batch");
    let replies = run(&mut world, &elements);
    assert_eq!(batch.elements.len(), replies.len());
    assert_eq!(world.effects(), 9);
    // The answers as the object has them in memory.
    let answers = world.answers(&alice, batch);
    let kept: usize = answers.iter().map(|answer| answer.body.len()).sum();
    assert!(kept <= ANSWERS_BYTES_MAX, "{kept} bytes were in memory at once");
    let mut texts = Answers::default();
    answers.into_iter().for_each(|answer: Answer| texts.add(answer, START_MS));
    let text = texts.whole(None, START_MS);
    assert!(text.len() <= ANSWERS_BYTES_MAX, "{}", text.len());
    let answers: Vec<Value> = serde_json::from_str(&text).expect("an array");
    let told: Vec<&str> =
        answers.iter().map(|answer| answer["headers"]["semel-status"].as_str().expect("a status")).collect();
    assert_eq!(told[..4], ["replayed"; 4]);
    assert_eq!(told[4..8], ["unavailable"; 4]);
    assert_eq!(told[8], "replayed", "a small one has room");
    let problem: Value = serde_json::from_str(answers[4]["body"].as_str().expect("text")).expect("a problem");
    assert_eq!((&problem["executed"], &problem["retry"]), (&json!("unknown"), &json!("same-id")));
}

#[test]
fn acknowledgements_that_are_invalid_forbidden_or_fail_refuse_the_whole_batch() {
    let mut world = World::new();
    let elements = json!([count("a")]);
    let refused = |world: &mut World, asker: &Asker, acks: &str| {
        world.batch_by(asker, &[("semel-ack", acks)], &elements).map_err(|problem| problem.code)
    };
    assert_eq!(refused(&mut world, &asker("alice"), "a"), Err(Code::KeyInvalid));
    assert_eq!(refused(&mut world, &limited(json!({ "methods": ["GET"] })), &quoted("a")), Err(Code::Forbidden));
    for acks in [json!("a"), json!([1]), json!([""]), json!({}), json!(vec!["a"; 257])] {
        let refused = world.frame(&json!({ "frame": 1, "requests": [count("a")], "acks": acks }));
        assert_eq!(refused.expect_err("acks").code, Code::BodyInvalid, "{acks}");
    }
    assert_eq!(world.calls(), 0);
    // If acknowledging fails, nobody may be told that it was applied.
    world.send(&post("/count").id("b")).is_executed(200);
    world.database.crash_before(0);
    let ended = world.frame(&json!({ "frame": 1, "requests": [], "acks": ["b"] }));
    assert_eq!(ended.expect_err("storage").code, Code::Unavailable);
}

#[test]
fn a_batch_in_one_commit_does_nothing_if_it_cannot_acknowledge() {
    let mut world = World::new();
    let ids = ["a", "b", "c"];
    for id in ids {
        world.send(&post("/count").id(id).first_sent_s(START_S).deadline_ms(START_MS)).is_executed(200);
    }
    let acks = ids.map(|id| json!({ "id": id, "until": START_MS }));
    let frame = json!({ "frame": 1, "requests": [count("d")], "acks": acks }).to_string();
    let together = |world: &mut World| {
        let batch = Batch::parse_frame(&key(), &asker("alice"), START_MS, Some(frame.as_bytes())).expect("a frame");
        world.in_one_commit(&asker("alice"), batch).expect("a batch").map(|replies| statuses(&replies).join(" "))
    };
    let kept = |world: &World| (world.database.number("SELECT count(*) FROM semel_records"), world.effects_of("d"));
    // The client takes the answers as the word that all three are acknowledged. The acknowledgement fails at a desk, and then
    // without one.
    world.database.fail_at("INSERT INTO semel_tombstones", 2);
    assert_eq!((together(&mut world), kept(&world)), (None, (3, 0)));
    world.database.calm();
    assert_eq!((together(&mut world).as_deref(), kept(&world)), (Some("executed"), (1, 1)));
}

#[test]
fn a_place_in_a_session_becomes_the_semel_session_header_of_its_element() {
    let element = |session: Value| json!([{ "session": session, "method": "POST", "path": "/count" }]).to_string();
    let header = |session: Value| {
        let batch = Batch::parse(&key(), &Headers::new(), Some(element(session).as_bytes())).expect("a batch");
        batch.elements[0].headers.get("semel-session").expect("a session").to_owned()
    };
    assert_eq!(header(json!({ "name": "a\"b", "epoch": 2, "seq": 3, "ack": 1 })), "\"a\\\"b\";epoch=2;seq=3;ack=1");
    assert_eq!(header(json!({ "seq": 3, "epoch": 2, "name": "s", "ack": null })), "\"s\";epoch=2;seq=3");
}

#[test]
fn a_frame_without_a_valid_number_and_requests_is_body_invalid() {
    let mut world = World::new();
    for bad in [
        json!({}),
        json!({ "frame": 1 }),
        json!({ "requests": [] }),
        json!({ "frame": -1, "requests": [] }),
        json!({ "frame": 1_u64 << 53, "requests": [] }),
        json!({ "frame": 1.5, "requests": [] }),
        json!({ "frame": "1", "requests": [] }),
        json!({ "frame": 1, "requests": {} }),
        json!({ "frame": 1, "requests": [], "more": 1 }),
        json!([1, []]),
        json!([]),
    ] {
        assert_eq!(world.frame(&bad).expect_err("no frame").code, Code::BodyInvalid, "{bad}");
    }
    let replies = world.frame(&json!({ "frame": (1_u64 << 53) - 1, "requests": [count("a")] }));
    assert_eq!(statuses(&replies.expect("answers")), ["executed"]);
    assert_eq!(Answers::default().whole(Some(7), 5), "{\"frame\":7,\"now\":5,\"answers\":[]}");
}

#[test]
fn a_frame_is_unauthorized_once_the_token_of_its_socket_has_ended() {
    let mut world = World::new();
    let alice = Asker { ends_ms: Some(START_MS + 1_000), ..asker("alice") };
    let mut ask = |after_ms: i64, id: &str| {
        world.wall_ms = START_MS + after_ms;
        let answered = world.frame_by(&alice, &json!({ "frame": 1, "requests": [count(id)] }));
        (answered.map(|replies| replies.len()).map_err(|problem| problem.code), world.calls())
    };
    assert_eq!(ask(999, "a"), (Ok(1), 1));
    for after_ms in [1_000, 1_001, 60_000] {
        assert_eq!(ask(after_ms, "b"), (Err(Code::Unauthorized), 1));
    }
    // This is checked before the frame is read, so nobody learns whether it could be.
    let bad = world.frame_by(&alice, &json!([]));
    assert_eq!(bad.expect_err("the token has ended").code, Code::Unauthorized);
}

#[test]
fn a_batch_in_which_an_element_has_a_header_twice_is_body_invalid() {
    let text = r#"[{"method":"GET","path":"/count","headers":{"accept":"a","accept":"b"}}]"#;
    let problem = Batch::parse(&key(), &Headers::new(), Some(text.as_bytes()));
    assert_eq!(problem.expect_err("no batch").code, Code::BodyInvalid);
}

#[test]
fn the_session_and_deadline_headers_of_a_batch_are_checked_for_all_of_it() {
    let mut world = World::new();
    let elements = json!([count("a")]);
    let mut sent = |name: &str, value: &str| {
        let answered = world.batch_by(&asker("alice"), &[(name, value)], &elements);
        answered.map(|replies| statuses(&replies).concat()).map_err(|problem| problem.code)
    };
    assert_eq!(sent("semel-session", "\"s\";epoch=1;seq=1"), Err(Code::KeyInvalid));
    assert_eq!(sent("semel-session", "s"), Err(Code::KeyInvalid));
    assert_eq!(sent("semel-deadline", "soon"), Err(Code::KeyInvalid));
    assert_eq!(sent("semel-deadline", &format!("{}", START_MS + 120_001)), Err(Code::KeyInvalid));
    assert_eq!(sent("semel-deadline", &format!("{}", START_MS - 1)), Err(Code::AttemptExpired));
    assert_eq!(sent("semel-deadline", &format!("{START_MS}")), Ok("executed".to_owned()));
    assert_eq!(world.calls(), 1);
}

#[test]
fn an_element_has_the_earlier_of_its_own_deadline_and_that_of_its_batch() {
    let read = |own: &str, of_batch| {
        let text = format!("{{\"method\":\"POST\",\"path\":\"/count\"{own}}}");
        let element = Element::read(&text, of_batch, START_MS).expect("it can be read");
        header::deadline_ms(&element.headers, START_MS)
    };
    let own = |ms: i64| format!(",\"deadline\":{ms}");
    assert_eq!(read("", None), None);
    assert_eq!(read(&own(START_MS), None), Some(START_MS));
    assert_eq!(read("", Some(START_MS + 5)), Some(START_MS + 5));
    assert_eq!(read(&own(START_MS + 120_000), Some(START_MS + 5)), Some(START_MS + 5));
    assert_eq!(read(&own(START_MS), Some(START_MS + 5)), Some(START_MS));
    // A deadline that is invalid is refused, as it is without a deadline of the batch.
    for bad in [-1, START_MS + 120_001, i64::MAX] {
        assert_eq!(read(&own(bad), Some(START_MS + 5)), None, "{bad}");
    }
}

#[test]
fn each_answer_of_a_batch_has_its_own_headers_whatever_earlier_ones_had() {
    let answer = |name: &str, value: &str| Answer {
        status: 200,
        headers: Headers::from_iter([("x-b", "2"), (name, value), ("x-b", "1")]),
        body: b"{}".to_vec(),
        log: None,
    };
    let mut texts = Answers::default();
    for (name, value) in [("x-a", "1"), ("x-a", "1"), ("x-a", "2"), ("x-c", "2"), ("x-a", "1")] {
        texts.add(answer(name, value), START_MS);
    }
    let told: Value = serde_json::from_str(&texts.whole(None, START_MS)).expect("an array");
    let headers = |name: &str, value: &str| json!({ name: value, "x-b": "2, 1" });
    let expected = [("x-a", "1"), ("x-a", "1"), ("x-a", "2"), ("x-c", "2"), ("x-a", "1")];
    for (n, (name, value)) in expected.into_iter().enumerate() {
        assert_eq!(told[n], json!({ "status": 200, "headers": headers(name, value), "body": "{}" }));
    }
}

#[test]
fn an_empty_query_of_an_element_is_dropped_as_in_a_single_request() {
    let mut world = World::new();
    assert_eq!(statuses(&run(&mut world, &json!([at("a", "/count?")]))), ["executed"]);
    // A single request's URL has no `?` either.
    world.send(&post("/count").id("a")).is_replayed(200);
}

#[test]
fn answers_in_a_batch_are_counted_like_those_to_single_requests() {
    let mut world = World::new();
    run(&mut world, &json!([count("a"), count("b"), count("a")]));
    assert_eq!((world.counted("executed"), world.counted("replayed")), (2, 1));
}

#[test]
fn a_first_frame_has_room_for_the_longest_token_and_principal_and_16_kib_at_most() {
    let token = format!("Bearer {}", "x".repeat(TOKEN_BYTES_MAX));
    let said = json!({ "authorization": token, "principal": "a".repeat(255) }).to_string();
    let frame = |bytes: usize| format!("{said:<bytes$}");
    assert!(first_frame(&frame(16 << 10)).is_ok());
    assert_eq!(first_frame(&frame((16 << 10) + 1)).map_err(|problem| problem.code), Err(Code::TooLarge));
}

#[test]
fn a_first_frame_with_anything_but_credentials_is_body_invalid() {
    for frame in ["[]", "{\"authorization\":1}", "{\"principal\":\"a\",\"key\":\"a\"}", "{\"frame\":1,\"requests\":[]}"]
    {
        assert_eq!(first_frame(frame).map_err(|problem| problem.code), Err(Code::BodyInvalid), "{frame}");
    }
    assert_eq!(first_frame("{}"), Ok(Headers::new()), "it is for the gate to say whether nobody may");
}
