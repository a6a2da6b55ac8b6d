//! Orders with stock. A shop is a key: `POST /shops/{shop}/deliveries` and `/orders`, `GET /shops/{shop}/stock/{item}`.

use semel_worker::json::{read::Members, write::Object};
use semel_worker::{Context, Failure, Handler, KeyRule, Method, Path, Request, Response, Sql, SqlError, Value};

#[derive(Default)]
struct Orders;

semel_worker::export!(Orders);

impl Handler for Orders {
    const SCHEMA_VERSION: i64 = 1;

    fn key(&self, _: &Method, path: &Path) -> KeyRule {
        match path.segments().as_slice() {
            ["shops", shop, ..] => KeyRule::Key(format!("shops/{shop}")),
            _ => KeyRule::Unhandled,
        }
    }

    fn migrate(&self, sql: &dyn Sql, _from: i64) -> Result<(), SqlError> {
        // The constraints stop what must never happen: a violation undoes everything that the request did. JSON would round a stock past 2^53 - 1.
        sql.exec("CREATE TABLE stock (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL CHECK (quantity <= 9007199254740991)) STRICT", &[])?;
        sql.exec("CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT NOT NULL, quantity INTEGER NOT NULL CHECK (quantity <= 1000)) STRICT", &[])?;
        Ok(())
    }

    fn handle(&self, context: &mut Context<'_>, request: &Request) -> Result<Response, Failure> {
        match (&request.method, request.path.segments().as_slice()) {
            (Method::Get | Method::Head, ["shops", _, "stock", item]) => {
                let quantity = number(context.sql, "SELECT quantity FROM stock WHERE item = ?1", &[(*item).into()])?;
                Ok(Response::json(200, Object::default().with("quantity", quantity.unwrap_or(0)).end()))
            }
            (Method::Post, ["shops", _, what @ ("deliveries" | "orders")]) => {
                // A client's mistake is answered with a 400. An error would be retried again and again.
                let most = if *what == "orders" { 1000 } else { (1 << 53) - 1 };
                match asked(&request.body, most) {
                    Some(asked) if *what == "orders" => order(context.sql, &asked),
                    Some(asked) => deliver(context.sql, &asked),
                    None => Ok(Response::json(400, r#"{"error":"invalid"}"#)),
                }
            }
            _ => Err(Failure::NotFound),
        }
    }
}

fn asked(body: &[u8], most: i64) -> Option<[Value; 2]> {
    let mut body = Members::parse(body).ok()?;
    let quantity = body.required::<i64>("quantity").ok().filter(|quantity| (1..=most).contains(quantity))?;
    Some([body.required::<String>("item").ok()?.into(), quantity.into()])
}

fn deliver(sql: &dyn Sql, asked: &[Value]) -> Result<Response, Failure> {
    let delivered =
        "INSERT INTO stock VALUES (?1, ?2) ON CONFLICT DO UPDATE SET quantity = quantity + ?2 RETURNING quantity";
    let quantity = number(sql, delivered, asked)?;
    Ok(Response::json(201, Object::default().with_some("quantity", quantity).end()))
}

fn order(sql: &dyn Sql, asked: &[Value]) -> Result<Response, Failure> {
    let taken = "UPDATE stock SET quantity = quantity - ?2 WHERE item = ?1 AND quantity >= ?2 RETURNING quantity";
    let Some(left) = number(sql, taken, asked)? else { return Ok(Response::json(409, r#"{"error":"out-of-stock"}"#)) };
    let order = number(sql, "INSERT INTO orders (item, quantity) VALUES (?1, ?2) RETURNING number", asked)?;
    Ok(Response::json(201, Object::default().with_some("order", order).with("left", left).end()))
}

fn number(sql: &dyn Sql, statement: &str, arguments: &[Value]) -> Result<Option<i64>, SqlError> {
    let rows = sql.exec(statement, arguments)?;
    Ok(rows.first().and_then(|row| row.first()).and_then(Value::as_integer))
}
