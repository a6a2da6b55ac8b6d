//! What the requests at a desk have sent to others: the tables of it, what is heard of it, and which of it somebody mends.
//!
//! Invariant: what is heard may be anything that a key, or whoever else, says, so that a lane is in every state that it has.

use crate::desk_handler::Book;
use crate::source::Source;
use semel_core::server::Value;
use semel_core::server::effects::{Heard, Sending};
use semel_support::World;

/// What is to be sent, or is parked, where anything ever was.
pub const SENT: &[(&str, &str)] = &[
    ("semel_effect_lanes", "SELECT * FROM semel_effect_lanes ORDER BY number"),
    ("semel_effects", "SELECT * FROM semel_effects ORDER BY lane, seq"),
    ("semel_effects_parked", "SELECT * FROM semel_effects_parked ORDER BY number"),
];

/// What is heard of what was sent: nothing, or what its key, or whoever else, may say.
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

/// The id of something that waits to be sent, or is parked; of the first, as a rule.
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
