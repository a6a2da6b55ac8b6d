//! An object's SQLite storage, as the engine's trait [`Sql`].
//!
//! Invariants:
//! - A transaction is the object's `transactionSync`, since writes outside of one would outlive a handler that fails.
//!   Only a light transaction does without, which writes nothing before the last step that may ask for a rollback.
//! - A panic inside a transaction leaves it at once, through JavaScript, which rolls the transaction back. Going on in
//!   this instance would mean going on with half-written memory.

use js_sys::{Array, Reflect, Uint8Array};
use semel_core::server::storage::sql::{Ended, Rollback, Row, Sql, SqlError, Value};
use std::cell::RefCell;
use wasm_bindgen::prelude::*;

#[wasm_bindgen]
extern "C" {
    type Storage;
    type SqlStorage;

    #[wasm_bindgen(method, getter)]
    fn sql(this: &Storage) -> SqlStorage;

    #[wasm_bindgen(method, getter, catch, js_name = databaseSize)]
    fn database_size(this: &SqlStorage) -> Result<f64, JsValue>;

    #[wasm_bindgen(js_namespace = console, js_name = log)]
    pub fn console_log(line: &str);
}

// An exception in these functions is a failure of the storage.
#[wasm_bindgen(raw_module = "./storage.js")]
extern "C" {
    #[wasm_bindgen(catch, js_name = rowsOf)]
    fn rows_of(sql: &SqlStorage, statement: &JsValue, values: &Array) -> Result<Array, JsValue>;

    #[wasm_bindgen(catch)]
    fn run(sql: &SqlStorage, statement: &JsValue, values: &Array) -> Result<f64, JsValue>;

    #[wasm_bindgen(catch)]
    fn transact(
        storage: &Storage,
        is_light: bool,
        body: &mut dyn FnMut() -> Result<JsValue, JsValue>,
    ) -> Result<JsValue, JsValue>;

    #[wasm_bindgen(catch, js_name = runPlain)]
    fn run_plain(sql: &SqlStorage, statement: &JsValue, numbers: &[f64], bytes: &[u8]) -> Result<f64, JsValue>;
}

/// The number of statements that are kept as JavaScript strings. The engine has fewer; further statements of a handler
/// are made anew each time.
const STATEMENTS_MAX: usize = 128;

pub struct ObjectSql {
    storage: Storage,
    sql: SqlStorage,
    /// A list, because there are few enough to search.
    statements: RefCell<Vec<(String, JsValue)>>,
}

impl ObjectSql {
    pub fn new(storage: JsValue) -> Self {
        let storage: Storage = storage.unchecked_into();
        let sql = storage.sql();
        Self { storage, sql, statements: RefCell::default() }
    }

    /// A statement as a JavaScript string. Finding it is faster than making it anew.
    fn statement(&self, text: &str) -> JsValue {
        let mut statements = self.statements.borrow_mut();
        if let Some((_, made)) = statements.iter().find(|(known, _)| known == text) {
            return made.clone();
        }
        let made = JsValue::from_str(text);
        if statements.len() < STATEMENTS_MAX {
            statements.push((text.to_owned(), made.clone()));
        }
        made
    }

    fn transact(&self, is_light: bool, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        let mut is_undone = false;
        let ended = transact(&self.storage, is_light, &mut || match body() {
            Ok(()) => Ok(JsValue::UNDEFINED),
            Err(Rollback) => {
                is_undone = true;
                Err(JsValue::UNDEFINED)
            }
        });
        match ended {
            Ok(_) => Ok(Ended::Committed),
            Err(_) if is_undone => Ok(Ended::RolledBack),
            Err(error) if is_trap(&error) => wasm_bindgen::throw_val(error),
            Err(error) => Err(failure(&error)),
        }
    }
}

/// The most numbers that are passed to a statement at once.
const PLAIN_MAX: usize = 8;

/// Splits arguments that are whole numbers, followed by bytes or not, into both. Nearly all writes have such arguments,
/// which can be passed as views of the module's memory. Returns how many `numbers` there are, and the bytes; `None` for
/// other arguments.
fn plain<'a>(arguments: &'a [Value], numbers: &mut [f64; PLAIN_MAX]) -> Option<(usize, &'a [u8])> {
    let (integers, bytes) = match arguments.split_last() {
        Some((Value::Blob(bytes), integers)) if !bytes.is_empty() => (integers, bytes.as_slice()),
        _ => (arguments, &[][..]),
    };
    if integers.len() > numbers.len() {
        return None;
    }
    for (number, integer) in numbers.iter_mut().zip(integers) {
        *number = match integer {
            Value::Integer(integer) if integer.unsigned_abs() >> 53 == 0 => *integer as f64,
            _ => return None,
        };
    }
    Some((integers.len(), bytes))
}

/// Lays out the arguments of a statement. All bytes are passed as one piece, of which each value is a view, because
/// allocating memory for each value takes the runtime longer than all the rest.
fn bound(arguments: &[Value]) -> Array {
    let blobs: Vec<&[u8]> = arguments.iter().filter_map(Value::as_blob).collect();
    if blobs.is_empty() {
        return arguments.iter().map(to_js).collect();
    }
    let whole = Uint8Array::from(blobs.concat().as_slice());
    let mut at = 0;
    let value = |argument: &Value| match argument.as_blob() {
        Some(blob) => {
            let begin = at;
            at += blob.len() as u32;
            whole.subarray(begin, at).into()
        }
        None => to_js(argument),
    };
    arguments.iter().map(value).collect()
}

impl Sql for ObjectSql {
    fn exec(&self, statement: &str, arguments: &[Value]) -> Result<Vec<Row>, SqlError> {
        let rows =
            rows_of(&self.sql, &self.statement(statement), &bound(arguments)).map_err(|error| failure(&error))?;
        Ok(rows.iter().map(|row| row.unchecked_into::<Array>().iter().map(|value| from_js(&value)).collect()).collect())
    }

    fn run(&self, statement: &str, arguments: &[Value]) -> Result<u64, SqlError> {
        let made = self.statement(statement);
        let mut numbers = [0.0; PLAIN_MAX];
        let written = match plain(arguments, &mut numbers) {
            Some((length, bytes)) => run_plain(&self.sql, &made, numbers.get(..length).unwrap_or_default(), bytes),
            None => run(&self.sql, &made, &bound(arguments)),
        };
        written.map(|rows| rows as u64).map_err(|error| failure(&error))
    }

    fn transaction(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.transact(false, body)
    }

    fn lightly(&self, body: &mut dyn FnMut() -> Result<(), Rollback>) -> Result<Ended, SqlError> {
        self.transact(true, body)
    }

    fn database_bytes(&self) -> Result<u64, SqlError> {
        self.sql.database_size().map(|bytes| bytes as u64).map_err(|error| failure(&error))
    }
}

/// Whether an exception is a trap of this module, and not an error of the storage.
fn is_trap(error: &JsValue) -> bool {
    let name = Reflect::get(error, &JsValue::from_str("name")).ok().and_then(|name| name.as_string());
    let is_stack_overflow = name.as_deref() == Some("RangeError");
    is_stack_overflow || error.is_instance_of::<js_sys::WebAssembly::RuntimeError>()
}

fn failure(error: &JsValue) -> SqlError {
    let message = Reflect::get(error, &JsValue::from_str("message")).ok().and_then(|message| message.as_string());
    SqlError(message.or_else(|| error.as_string()).unwrap_or_else(|| "storage failed without a message".to_owned()))
}

pub fn to_js(value: &Value) -> JsValue {
    match value {
        Value::Null => JsValue::NULL,
        // A number beyond 2^53 - 1 would become another number. So it is passed as a BigInt, which the runtime refuses
        // with an error that says so.
        Value::Integer(value) if value.unsigned_abs() >> 53 != 0 => JsValue::from(*value),
        Value::Integer(value) => JsValue::from_f64(*value as f64),
        Value::Real(value) => JsValue::from_f64(*value),
        Value::Text(value) => JsValue::from_str(value),
        Value::Blob(value) => Uint8Array::from(value.as_slice()).into(),
    }
}

pub fn from_js(value: &JsValue) -> Value {
    if let Some(number) = value.as_f64() {
        // SQLite's integers arrive as floats. A whole float within 2^53 is an integer. Beyond that, a rounded integer
        // can't be told from a float, so both are floats.
        return match Value::Real(number).as_integer() {
            Some(integer) => Value::Integer(integer),
            None => Value::Real(number),
        };
    }
    if let Some(text) = value.as_string() {
        return Value::Text(text);
    }
    match value.dyn_ref::<js_sys::ArrayBuffer>() {
        Some(buffer) => Value::Blob(Uint8Array::new(buffer).to_vec()),
        None => Value::Null,
    }
}
