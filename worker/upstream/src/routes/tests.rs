//! Which requests a route names, and what it says of them.

use super::*;
use semel_core::message::Headers;

fn request(method: &str, path: &str, body: &str) -> Request {
    let headers = Headers::from_iter([("idempotency-key", "\"one\""), ("x-ref", "r")]);
    let path = Path::new(path, "").expect("a path");
    Request { method: Method::new(method), path, headers, body: body.into() }
}

fn routes(text: &str) -> Routes {
    Routes::parse(text).expect("routes")
}

#[test]
fn the_first_route_that_names_a_request_decides_its_key_and_its_policy() {
    let routes = routes(
        r#"[{"path":"/shops/:shop/orders","methods":["POST"],"key":"shops/{shop}","inDoubt":"resend","dedupSeconds":60},
            {"path":"/shops/*","inDoubt":"probe","probe":"/orders/{$id}","settleSeconds":5}]"#,
    );
    let first = request("POST", "/shops/a%20b/orders", "");
    assert_eq!(routes.key(&first.method, &first.path), KeyRule::Key("shops/a b".to_owned()));
    assert_eq!(routes.policy(&first, 25), Policy::Resend { dedup_s: 60 });
    let second = request("PUT", "/shops/a/orders", "");
    assert_eq!(routes.key(&second.method, &second.path), KeyRule::Any);
    assert_eq!(
        routes.policy(&second, 25),
        Policy::Probe { path: "/orders/one".to_owned(), timeout_s: 25, settle_s: 30 }
    );
    assert_eq!(routes.policy(&request("POST", "/elsewhere", ""), 25), Policy::Report);
}

/// As a client sends it whose field was left empty: two orders with the same body would be one.
#[test]
fn no_id_is_made_of_an_empty_member_or_header() {
    let routes = routes(r#"[{"path":"/orders","idFrom":["body.ref"]}, {"path":"/parcels","idFrom":["header.x-ref"]}]"#);
    let id = |path: &str, headers: &[(&str, &str)], body: &str| {
        let headers = Headers::from_iter(headers.iter().copied());
        let path = Path::new(path, "").expect("a path");
        routes.id(&Principal::default(), &Request { method: Method::Post, path, headers, body: body.into() })
    };
    assert_eq!(id("/orders", &[], r#"{"ref":""}"#), None);
    assert_eq!(id("/parcels", &[("x-ref", "")], ""), None);
    assert!(id("/orders", &[], r#"{"ref":"0"}"#).is_some() && id("/parcels", &[("x-ref", "0")], "").is_some());
}

#[test]
fn the_path_of_a_route_is_compared_with_the_decoded_path_of_a_request() {
    let routes = routes(r#"[{"path":"/th\u00e9/:x","key":"plain"}, {"path":"/a b/:x","key":"blank"}]"#);
    for (path, key) in [("/th%C3%A9/a", "plain"), ("/th%c3%a9/a", "plain"), ("/a%20b/a", "blank")] {
        let request = request("POST", path, "");
        assert_eq!(routes.key(&request.method, &request.path), KeyRule::Key(key.to_owned()), "{path}");
    }
}

#[test]
fn a_request_that_lacks_a_part_of_the_path_of_its_probe_is_reported() {
    let routes = routes(r#"[{"path":"/*","inDoubt":"probe","probe":"/orders/{body.ref}","settleSeconds":5}]"#);
    assert_eq!(routes.policy(&request("POST", "/orders", "{}"), 25), Policy::Report);
    let policy = routes.policy(&request("POST", "/orders", r#"{"ref":"a/b"}"#), 25);
    assert_eq!(policy, Policy::Probe { path: "/orders/a%2Fb".to_owned(), timeout_s: 25, settle_s: 30 });
}

#[test]
fn an_id_is_hashed_from_the_principal_and_from_the_parts_that_the_route_names() {
    let routes = routes(r#"[{"path":"/orders","idFrom":["body.ref","header.X-Ref"]}, {"path":"/others"}]"#);
    let principal = Principal::default();
    let id = |path: &str, body: &str| routes.id(&principal, &request("POST", path, body));
    let one = id("/orders", r#"{"ref":1,"note":"x"}"#);
    assert_eq!(one.as_ref().map(String::len), Some(69));
    assert_eq!(one, id("/orders", r#"{"note":"y","ref":1}"#));
    assert_ne!(one, id("/orders", r#"{"ref":2}"#));
    assert_eq!(id("/orders", "{}"), None, "without what it is made of there is none");
    assert_eq!(id("/others", r#"{"ref":1}"#), None);
    let other = Principal::new("mallory").expect("a principal");
    assert_ne!(one, routes.id(&other, &request("POST", "/orders", r#"{"ref":1}"#)));
    let one = RequestId::new(one.expect("an id")).expect("an id");
    assert!(routes.owns(&one) && !routes.owns(&RequestId::new("one").expect("an id")));
    assert!(!self::routes("[]").owns(&one), "where none is made, it is anybody's");
    let makes = |path: &str| routes.makes_ids(&Method::Post, &Path::new(path, "").expect("a path"));
    assert_eq!((makes("/orders"), makes("/others")), (true, false));
}

/// A request of a path that is longer or shorter would otherwise get another key, and be sent again by another policy.
#[test]
fn an_open_path_names_itself_and_all_below_it_and_any_other_names_paths_of_its_length() {
    let routes = routes(
        r#"[{"path":"/shops/:shop/*","key":"open"}, {"path":"/carts/:cart","methods":["GET","POST"],"key":"closed"}, {"path":"/","key":"root"}]"#,
    );
    for (path, key) in [
        ("/shops/a", Some("open")),
        ("/shops/a/b/c", Some("open")),
        ("/shops", None),
        ("/carts/a", Some("closed")),
        ("/carts/a/b", None),
        ("/carts", None),
        ("/", Some("root")),
    ] {
        let request = request("POST", path, "");
        let key = key.map_or(KeyRule::Any, |key| KeyRule::Key(key.to_owned()));
        assert_eq!(routes.key(&request.method, &request.path), key, "{path}");
    }
}

/// An id that is made otherwise than by the build before would have a request executed again whose answer was lost.
#[test]
fn an_id_is_the_same_in_each_build_and_another_for_each_part_that_differs() {
    let routes = routes(r#"[{"path":"/orders","idFrom":["body","body.a","body.b","header.x-ref"]}]"#);
    let id = |method: &str, query: &str, refs: [&str; 2], body: &str| {
        let headers = Headers::from_iter(refs.map(|value| ("x-ref", value)));
        let path = Path::new("/orders", query).expect("a path");
        let request = Request { method: Method::new(method), path, headers, body: body.into() };
        routes.id(&Principal::default(), &request).expect("an id")
    };
    let body = r#"{"a":"x","b":"yz"}"#;
    let one = id("POST", "?day=1", ["r", "s"], body);
    assert_eq!(one, "hash-ce424be997157bb261fd95a3fcd02346d5fd6615e4e345e803c7b07a1f1df197");
    for other in [
        id("PUT", "?day=1", ["r", "s"], body),
        id("POST", "?day=2", ["r", "s"], body),
        id("POST", "?day=1", ["r", "t"], body),
        id("POST", "?day=1", ["r", "s"], r#"{"a":"xy","b":"z"}"#),
    ] {
        assert_ne!(other, one);
    }
}

/// Without the lengths of the parts, two orders would be one.
#[test]
fn an_id_tells_apart_parts_that_are_the_same_text_when_put_together() {
    let routes = routes(r#"[{"path":"/orders","idFrom":["body.a","body.b"]}]"#);
    let id = |body: &str| routes.id(&Principal::default(), &request("POST", "/orders", body)).expect("an id");
    assert_ne!(id(r#"{"a":"x","b":"yz"}"#), id(r#"{"a":"xy","b":"z"}"#));
}

#[test]
fn there_may_be_256_routes_and_a_route_may_name_thirty_days() {
    let many = |count| format!("[{}]", vec![r#"{"path":"/a"}"#; count].join(","));
    assert!(Routes::parse(&many(256)).is_ok());
    assert_eq!(Routes::parse(&many(257)), Err("257 routes; there may be 256".to_owned()));
    assert!(Routes::parse(r#"[{"path":"/a","inDoubt":"resend","dedupSeconds":2592000}]"#).is_ok());
}

#[test]
fn invalid_routes_are_refused() {
    for wrong in [
        "{}",
        r#"[{}]"#,
        r#"[{"path":"orders"}]"#,
        r#"[{"path":"/a//b"}]"#,
        r#"[{"path":"/a*"}]"#,
        r#"[{"path":"/:"}]"#,
        r#"[{"path":"/a%zz"}]"#,
        r#"[{"path":"/a%ff"}]"#,
        r#"[{"path":"/a/./b"}]"#,
        r#"[{"path":"/a/../b"}]"#,
        r#"[{"path":"/a/%2e%2E/*"}]"#,
        r#"[{"path":"/a%2Fb"}]"#,
        r#"[{"path":"/a%5cb"}]"#,
        r#"[{"path":"/a%00"}]"#,
        r#"[{"path":"/{shop}/orders"}]"#,
        r#"[{"path":"/a\\b"}]"#,
        r#"[{"path":"/a","probe":"/a"}]"#,
        r#"[{"path":"/a","inDoubt":"resend","dedupSeconds":5,"settleSeconds":5}]"#,
        r#"[{"path":"/a","inDoubt":"resend","dedupSeconds":5,"probe":"/a"}]"#,
        r#"[{"path":"/a","inDoubt":"resend","dedupSeconds":2592001}]"#,
        r#"[{"path":"/a","inDoubt":"probe","probe":"/a","settleSeconds":5,"dedupSeconds":5}]"#,
        r#"[{"path":"/a","inDoubt":"again"}]"#,
        r#"[{"path":"/a","inDoubt":"resend"}]"#,
        r#"[{"path":"/a","inDoubt":"resend","dedupSeconds":0}]"#,
        r#"[{"path":"/a","inDoubt":"probe","probe":"a","settleSeconds":5}]"#,
        r#"[{"path":"/a","inDoubt":"probe","probe":"/a"}]"#,
        r#"[{"path":"/a","dedupSeconds":5}]"#,
        r#"[{"path":"/a","key":"{$id}"}]"#,
        r#"[{"path":"/a","key":"{body.x}"}]"#,
        r#"[{"path":"/a","idFrom":["id"]}]"#,
        r#"[{"path":"/a","idFrom":["body."]}]"#,
        r#"[{"path":"/a","idFrom":["header."]}]"#,
        r#"[{"path":"/a","methods":["post"]}]"#,
        r#"[{"path":"/a","methods":["POST","OPTIONS"]}]"#,
        r#"[{"path":"/a","unknown":1}]"#,
    ] {
        assert!(Routes::parse(wrong).is_err(), "{wrong}");
    }
    for (wrong, given) in [
        (r#"[{"path":"/a","inDoubt":"resend","dedupSeconds":0}]"#, "dedupSeconds is 0; it must be"),
        (r#"[{"path":"/a","inDoubt":"probe","probe":"/a","settleSeconds":-5}]"#, "settleSeconds is -5; it must be"),
        (r#"[{"path":"/a","inDoubt":"again"}]"#, "inDoubt is \"again\"; it may be \"report\""),
    ] {
        assert!(Routes::parse(wrong).is_err_and(|error| error.contains(given)), "{wrong}");
    }
    for wrong in ["/shops/:shop, /carts/*", "{}", "\"/shops/*\""] {
        assert!(Routes::parse(wrong).is_err_and(|error| error.contains("; routes are as [{\"path\":")), "{wrong}");
    }
}
