//! A world with a short retention, for tests of what a key keeps, and for how long.

use crate::{Call, World, get, post};

/// The retention, in seconds.
pub const RETENTION_S: i64 = 1000;

/// A world whose key retains for [`RETENTION_S`].
pub fn world() -> World {
    World::with(|config| config.retention_s = RETENTION_S)
}

/// A change with an id.
pub fn change(id: &str) -> Call {
    post("/count").id(id)
}

/// Makes a new object, which sweeps with its first request.
pub fn sweep(world: &mut World) {
    world.restart();
    world.send(&get("/count"));
}
