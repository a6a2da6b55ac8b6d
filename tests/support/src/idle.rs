//! Sessions at a key with a short retention, for tests of what is left of them.

use crate::retained::RETENTION_S;
use crate::{Call, World, post, take_over_with};

/// A world whose key retains for [`RETENTION_S`], with the session of tests.
pub fn world() -> World {
    World::with(|config| config.retention_s = RETENTION_S).in_session()
}

/// How many sessions the key keeps.
pub fn sessions(world: &World) -> i64 {
    world.database.number("SELECT count(*) FROM semel_sessions")
}

/// The take-over `own` of a session with a name.
pub fn named(own: &str, name: &str) -> Call {
    take_over_with(own, &format!("{{\"name\":\"{name}\"}}"))
}

/// Sweeps until a walk is done, however many pages it has.
pub fn sweep(world: &mut World) {
    while world.sweep_page().expect("storage") {}
}

/// The first place of a session with a name.
pub fn first_of(name: &str, epoch: i64) -> Call {
    post("/count").header("semel-session", format!("\"{name}\";epoch={epoch};seq=1"))
}
