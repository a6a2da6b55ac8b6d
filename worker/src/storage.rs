//! An object's SQLite storage, behind the engine's trait.
//!
//! Invariants:
//! - A transaction is the object's `transactionSync`: writes outside of one would outlive a handler that fails. One that writes nothing by then may do without.
//! - A panic inside a transaction leaves at once, through JavaScript, which undoes the transaction. Going on in this
//!   instance would be going on with half-written memory.

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

// What fails on the way is a failure of the storage.
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

/// So many statements are kept as JavaScript has them. The engine has fewer, and a handler that makes more has them made each time.
const STATEMENTS_MAX: usize = 128;

pub struct ObjectSql {
    storage: Storage,
    sql: SqlStorage,
    /// Few enough to look through.
    statements: RefCell<Vec<(String, JsValue)>>,
}

impl ObjectSql {
    pub fn new(storage: JsValue) -> Self {
        let storage: Storage = storage.unchecked_into();
        let sql = storage.sql();
        Self { storage, sql, statements: RefCell::default() }
    }

    /// A statement as JavaScript has it: to make it anew takes longer than to find it.
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

/// So many numbers are handed over at once.
const PLAIN_MAX: usize = 8;

/// Whole numbers, and behind them bytes, if there are any: nearly all that is written comes to that, and is handed over where it lies. Answers how
/// many `numbers` there are, and the bytes.
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

/// Bytes are handed over in one piece, of which each value is a part: memory of its own takes the runtime longer than all else of it.
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

/// Whether an exception is a trap of this module, and not an error of storage.
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
        // Past 2^53 - 1 it would be another one: the runtime refuses what is no number, with that name.
        Value::Integer(value) if value.unsigned_abs() >> 53 != 0 => JsValue::from(*value),
        Value::Integer(value) => JsValue::from_f64(*value as f64),
        Value::Real(value) => JsValue::from_f64(*value),
        Value::Text(value) => JsValue::from_str(value),
        Value::Blob(value) => Uint8Array::from(value.as_slice()).into(),
    }
}

pub fn from_js(value: &JsValue) -> Value {
    if let Some(number) = value.as_f64() {
        // SQLite's integers arrive as floats; a whole float within 2^53 is one. Beyond that nothing tells an integer that was rounded from what a
        // column of floats has, which is no error: both are floats.
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
