//! A handler that does what its path says, even the worst. The tests run it on `workerd` and natively.
//!
//! Every change first counts itself in a table, so that a test can see what was kept and what was rolled back.

use semel_worker::{
    Context, Failure, Handler, Headers, KeyRule, Method, Path, Request, Response, Row, Sql, SqlError, Value,
};

semel_worker::export!(Probe);

/// The handler.
#[derive(Default)]
pub struct Probe;

impl Handler for Probe {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _: &Method, path: &Path) -> KeyRule {
        match path.segments().as_slice() {
            ["unhandled", ..] => KeyRule::Unhandled,
            ["rule-panics", ..] => panic!("the probe was asked to panic before it is a key's"),
            ["keyed", key, ..] => KeyRule::Key((*key).to_owned()),
            _ => KeyRule::Any,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        sql.exec(
            "CREATE TABLE probe (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), runs INTEGER NOT NULL, number INTEGER, bytes BLOB) STRICT",
            &[],
        )?;
        sql.exec("INSERT INTO probe (runs) VALUES (0)", &[]).map(|_| ())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        context.sql.exec("UPDATE probe SET runs = runs + 1", &[])?;
        let segments = request.path.segments();
        let argument = |index: usize| segments.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        match segments.first().copied().unwrap_or_default() {
            "runs" => Ok(number(&context.sql.exec("SELECT runs FROM probe LIMIT 1", &[])?)),
            "panic" => panic!("the probe was asked to panic"),
            "overflow" => Ok(Response::json(200, overflow(argument(1)).to_string())),
            "spin" => loop {
                std::hint::black_box(());
            },
            "fail" => Err(Failure::Other("the probe was asked to fail".to_owned())),
            "fail-saying" => Err(Failure::Other(String::from_utf8_lossy(&request.body).into_owned())),
            "panic-saying" => panic!("{}", String::from_utf8_lossy(&request.body)),
            "bad-sql" => Err(Failure::Sql(
                context.sql.exec("SELECT nothing FROM nowhere", &[]).err().unwrap_or(SqlError(String::new())),
            )),
            // The statement fails only after it has given its first row.
            "late-sql" => {
                let rows = "SELECT json(value) FROM (SELECT '1' AS value UNION ALL SELECT 'x')";
                Ok(Response::json(200, context.sql.exec(rows, &[])?.len().to_string()))
            }
            "nowhere" => Err(Failure::NotFound),
            "status" => Ok(Response { status: argument(1) as u16, headers: Headers::new(), body: Vec::new() }),
            "body-and-status" => {
                Ok(Response { status: argument(1) as u16, headers: Headers::new(), body: b"x".to_vec() })
            }
            "large" => Ok(Response { status: 200, headers: Headers::new(), body: vec![b'x'; argument(1) as usize] }),
            "many-headers" => Ok(Response {
                status: 200,
                headers: Headers::from_iter([("x-large", "x".repeat(argument(1) as usize))]),
                body: Vec::new(),
            }),
            "bad-header" => Ok(Response {
                status: 200,
                headers: Headers::from_iter([("x-bad", "a\r\nx-injected: b")]),
                body: Vec::new(),
            }),
            "headers" => Ok(Response { status: 201, headers: all_headers(), body: b"made".to_vec() }),
            "gzip" => Ok(gzipped()),
            "integer" => Ok(number(&context.sql.exec("SELECT ?1", &[integer(&segments)])?)),
            // Arguments of `run` cross to JavaScript in another way. The answer adds the number of bytes.
            "stored" => {
                let values = [integer(&segments), Value::Blob(request.body.clone())];
                context.sql.run("UPDATE probe SET number = ?1, bytes = ?2", &values)?;
                Ok(number(&context.sql.exec("SELECT number + length(bytes) FROM probe", &[])?))
            }
            "who" => Ok(Response::json(200, format!("{:?}", (context.key.as_str(), context.principal.as_str())))),
            "now" => Ok(Response::json(200, context.now_ms.to_string())),
            _ => Ok(echo(request)),
        }
    }
}

/// The number in the path's second segment.
fn integer(segments: &[&str]) -> Value {
    segments.get(1).and_then(|text| text.parse::<i64>().ok()).unwrap_or_default().into()
}

/// An answer with the only number of these rows.
fn number(rows: &[Row]) -> Response {
    let number = rows.first().and_then(|row| row.first()).and_then(Value::as_integer);
    Response::json(200, number.unwrap_or_default().to_string())
}

#[allow(unconditional_recursion)]
fn overflow(depth: u64) -> u64 {
    std::hint::black_box(overflow(std::hint::black_box(depth + 1))) + 1
}

/// Headers that are recorded, and headers that must not be.
fn all_headers() -> Headers {
    Headers::from_iter([
        ("content-type", "text/plain; charset=utf-8"),
        ("x-repeated", "one"),
        ("x-repeated", "two"),
        ("x-empty", ""),
        ("x-latin", "caf\u{e9}"),
        ("location", "/made/1"),
        ("set-cookie", "session=secret"),
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("access-control-allow-origin", "https://evil.example"),
        ("server-timing", "db;dur=5"),
        ("semel-status", "forged"),
        ("idempotent-replayed", "forged"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
    ])
}

/// "once" in gzip. The runtime must hand these bytes on as they are.
fn gzipped() -> Response {
    const ONCE: [u8; 24] = [31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 203, 207, 75, 78, 5, 0, 208, 115, 64, 115, 4, 0, 0, 0];
    Response { status: 200, headers: Headers::from_iter([("content-encoding", "gzip")]), body: ONCE.to_vec() }
}

/// Answers with what was sent: the body, its type, `traceparent`, and all headers that begin with `x-`.
fn echo(request: &Request) -> Response {
    let mut headers = Headers::new();
    let is_told = |name: &str| name.starts_with("x-") || ["content-type", "traceparent"].contains(&name);
    for (name, value) in request.headers.iter().filter(|(name, _)| is_told(name)) {
        headers.append(name, value);
    }
    headers.append("x-path", request.path.with_query());
    Response { status: 200, headers, body: request.body.clone() }
}
