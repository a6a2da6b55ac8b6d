//! The application's own store, as `js/store.js` hands it to the module: in memory, and as bad as a test wants it.

use super::wait::later;
use js_sys::{Array, Function, Object, Reflect, Uint8Array};
use semel_core::client::row::Settled;
use semel_core::client::{Entry, Row, codec};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};

/// What it makes of one change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// What it should.
    Keeps,
    /// It says that it failed, and changed nothing.
    Fails,
    /// It calls the function, drops what it returns, and says that it failed.
    Aborts,
    /// It says that all is durable, and never asked what to write.
    Pretends,
    /// It asks twice, as one that runs its transaction again, and fails where that throws.
    AsksTwice,
    /// It writes and is silent until [`Memory::release`].
    Holds,
}

#[derive(Default)]
struct State {
    rows: RefCell<BTreeMap<String, Vec<u8>>>,
    durable: RefCell<BTreeMap<String, Vec<u8>>>,
    turns: RefCell<VecDeque<Turn>>,
    held: RefCell<Vec<Box<dyn FnOnce()>>>,
    begun: Cell<usize>,
    ended: Cell<usize>,
    closed: Cell<usize>,
    is_unreadable: Cell<bool>,
    before_load: RefCell<Option<Box<dyn FnOnce()>>>,
}

/// The store.
#[derive(Clone, Default)]
pub struct Memory(Rc<State>);

impl Memory {
    /// What it makes of the next changes; of those after, what it should.
    pub fn takes_turns(&self, turns: &[Turn]) {
        self.0.turns.replace(turns.iter().copied().collect());
    }

    /// From now on it fails to load.
    pub fn cannot_load(&self) {
        self.0.is_unreadable.set(true);
    }

    /// What happens just before it reads all rows.
    pub fn before_load(&self, happens: impl FnOnce() + 'static) {
        self.0.before_load.replace(Some(Box::new(happens)));
    }

    /// Reports what was held back.
    pub fn release(&self) {
        for report in self.0.held.take() {
            report();
        }
    }

    /// Whether something is held back.
    pub fn is_holding(&self) -> bool {
        !self.0.held.borrow().is_empty()
    }

    /// Whether all changes that were asked for are reported.
    pub fn is_idle(&self) -> bool {
        self.0.begun.get() == self.0.ended.get()
    }

    /// How many changes it was asked for.
    pub fn begun(&self) -> usize {
        self.0.begun.get()
    }

    /// How often it was closed.
    pub fn closed(&self) -> usize {
        self.0.closed.get()
    }

    /// Puts a row in, as somebody else would.
    pub fn put(&self, id: &str, row: Vec<u8>) {
        self.0.rows.borrow_mut().insert(id.to_owned(), row.clone());
        self.0.durable.borrow_mut().insert(id.to_owned(), row);
    }

    /// The row that was reported as durable.
    pub fn durable(&self, id: &str) -> Option<Row> {
        self.0.durable.borrow().get(id).map(|row| codec::decode(row).expect("a row that can be read"))
    }

    /// The pending row that was reported as durable.
    pub fn pending(&self, id: &str) -> Option<Entry> {
        match self.durable(id) {
            Some(Row::Pending(entry)) => Some(entry),
            _ => None,
        }
    }

    /// The settled row that was reported as durable.
    pub fn settled(&self, id: &str) -> Option<Settled> {
        match self.durable(id) {
            Some(Row::Settled(settled)) => Some(settled),
            _ => None,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.rows.borrow().is_empty()
    }

    /// The object for the module.
    pub fn to_js(&self) -> JsValue {
        let object = Object::new();
        let own = self.clone();
        let load: Closure<dyn Fn(Function)> = Closure::new(move |done: Function| own.load(done));
        let own = self.clone();
        let change: Closure<dyn Fn(String, Function, Function)> =
            Closure::new(move |id, to, done| own.clone().change(id, to, done));
        let own = self.clone();
        let remove: Closure<dyn Fn(Array)> = Closure::new(move |ids: Array| own.remove(&ids));
        let own = self.clone();
        let close: Closure<dyn Fn()> = Closure::new(move || own.0.closed.set(own.0.closed.get() + 1));
        for (name, method) in [
            ("load", load.into_js_value()),
            ("change", change.into_js_value()),
            ("remove", remove.into_js_value()),
            ("close", close.into_js_value()),
        ] {
            Reflect::set(&object, &name.into(), &method).expect("an object takes a method");
        }
        object.into()
    }

    fn load(&self, done: Function) {
        if self.0.is_unreadable.get() {
            return later(move || call(&done, &js_sys::Error::new("no disk").into()));
        }
        let own = self.clone();
        later(move || {
            if let Some(happens) = own.0.before_load.take() {
                happens();
            }
            let (ids, rows) = (Array::new(), Array::new());
            for (id, row) in own.0.rows.borrow().iter() {
                ids.push(&id.into());
                rows.push(&Uint8Array::from(row.as_slice()));
            }
            later(move || call(&done, &Array::of2(&ids, &rows)));
        });
    }

    fn change(self, id: String, to: Function, done: Function) {
        self.0.begun.set(self.0.begun.get() + 1);
        let turn = self.0.turns.borrow_mut().pop_front().unwrap_or(Turn::Keeps);
        // A transaction takes a while, and so does its report.
        later(move || {
            let is_kept = match turn {
                Turn::Keeps | Turn::Holds => self.write(&id, &to),
                Turn::Fails => false,
                Turn::Aborts => {
                    self.ask(&id, &to).expect("it is asked for the first time");
                    false
                }
                Turn::Pretends => true,
                Turn::AsksTwice => self.ask(&id, &to).is_ok() && self.write(&id, &to),
            };
            let own = self.clone();
            let report = move || {
                let row = own.0.rows.borrow().get(&id).cloned();
                match row {
                    Some(row) if is_kept => drop(own.0.durable.borrow_mut().insert(id, row)),
                    None if is_kept => drop(own.0.durable.borrow_mut().remove(&id)),
                    _ => {}
                }
                call(&done, &is_kept.into());
                own.0.ended.set(own.0.ended.get() + 1);
            };
            match turn {
                Turn::Holds => self.0.held.borrow_mut().push(Box::new(report)),
                _ => later(report),
            }
        });
    }

    fn ask(&self, id: &str, to: &Function) -> Result<JsValue, JsValue> {
        let row = self.0.rows.borrow().get(id).cloned();
        let found = row.map_or(JsValue::UNDEFINED, |row| Uint8Array::from(row.as_slice()).into());
        to.call1(&JsValue::UNDEFINED, &found)
    }

    fn write(&self, id: &str, to: &Function) -> bool {
        let Ok(written) = self.ask(id, to) else { return false };
        if let Some(row) = written.dyn_ref::<Uint8Array>() {
            self.0.rows.borrow_mut().insert(id.to_owned(), row.to_vec());
        } else if written.is_undefined() {
            self.0.rows.borrow_mut().remove(id);
        } else {
            assert!(written.is_null(), "bytes, undefined or null");
        }
        true
    }

    fn remove(&self, ids: &Array) {
        for id in ids.iter() {
            let id = id.as_string().expect("an id is a string");
            self.0.rows.borrow_mut().remove(&id);
            self.0.durable.borrow_mut().remove(&id);
        }
    }
}

fn call(function: &Function, value: &JsValue) {
    function.call1(&JsValue::UNDEFINED, value).expect("a callback does not throw");
}
