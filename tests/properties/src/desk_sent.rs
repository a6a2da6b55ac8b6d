//! The effects that the desk's requests emit: their tables, the answers to them, and the administrator's decisions about them.
//!
//! Invariant: the answer may be anything that a key or somebody else says, so that a lane gets into all of its states.

use crate::desk_handler::Book;
use crate::source::Source;
use semel_core::server::Value;
use semel_core::server::effects::{Heard, Sending};
use semel_support::World;

/// The tables of waiting and parked effects, if there ever were any.
pub const SENT: &[(&str, &str)] = &[
    ("semel_effect_lanes", "SELECT * FROM semel_effect_lanes ORDER BY number"),
    ("semel_effects", "SELECT * FROM semel_effects ORDER BY lane, seq"),
    ("semel_effects_parked", "SELECT * FROM semel_effects_parked ORDER BY number"),
];

/// The answer to what was sent: none, or one that its key or somebody else may give.
pub fn heard(source: &mut Source<'_>, sending: &Sending) -> Heard {
    let answered = |status, semel: &str, body: &str| Heard::Answered {
        status,
        semel: semel.to_owned(),
        body: body.to_owned().into_bytes(),
    };
    let is_take_over = sending.url.ends_with("/sessions");
    match source.below(8) {
        0 => Heard::Nothing("lost".to_owned()),
        1 => answered(503, "unavailable", r#"{"code":"unavailable","executed":"unknown","retry":"same-id"}"#),
        2 => answered(500, "rolled-back", r#"{"code":"rolled-back","executed":"no","retry":"same-id"}"#),
        3 => answered(409, "fenced", r#"{"code":"fenced","executed":"no","retry":"never","currentEpoch":9}"#),
        4 => answered(403, "forbidden", r#"{"code":"forbidden","executed":"no","retry":"after-fix"}"#),
        _ if is_take_over => {
            let (epoch, last) = (1 + source.below(9), source.below(4));
            answered(200, "executed", &format!(r#"{{"name":"s","epoch":{epoch},"lastSeq":{last}}}"#))
        }
        _ => answered(200, "executed", "{}"),
    }
}

/// The id of an effect that waits or is parked, usually of the first.
pub fn id(source: &mut Source<'_>, world: &World<Book>) -> String {
    let all = ["semel_effects_parked", "semel_effects"].map(|table| {
        match world.database.tables().contains(&table.to_owned()) {
            true => world.database.query(&format!("SELECT id FROM {table}")),
            false => Vec::new(),
        }
    });
    let all: Vec<_> = all.into_iter().flatten().flatten().filter_map(Value::into_text).collect();
    let at = usize::from(source.byte() / 2);
    all.get(if source.flag() { 0 } else { at }).cloned().unwrap_or_else(|| "0".repeat(32))
}
