//! Reads a deployment's settings. `module.js` passes each as `NAME=value` and a NUL. A value may have several lines.
//!
//! Invariant: a setting that can't be read throws when the instance is made, so nothing is served on a guess.

use semel_core::server::{Access, Config, Cors};
use wasm_bindgen::JsValue;

/// Reads the engine's settings, and which pages may read its answers.
pub fn read(settings: &str) -> Result<(Config, Cors), JsValue> {
    let config = Config::from_settings(|name| setting(settings, name)).map_err(thrown)?;
    let cors = Cors::from_settings(config.open, |name| setting(settings, name)).map_err(thrown)?;
    Ok((config, cors))
}

/// Reads which pages may read answers, even if other settings can't be read.
pub fn cors(settings: &str) -> Cors {
    let is_open = setting(settings, "SEMEL_OPEN").is_some_and(|open| open == "true");
    Cors::from_settings(is_open, |name| setting(settings, name)).unwrap_or(Cors::Listed(Vec::new()))
}

/// Reads who may ask.
pub fn access(settings: &str, is_open: bool) -> Result<Access, JsValue> {
    Access::from_settings(is_open, |name| setting(settings, name)).map_err(thrown)
}

fn setting(settings: &str, name: &str) -> Option<String> {
    let mut each = settings.split('\0').filter_map(|setting| setting.split_once('='));
    each.find(|(each, _)| *each == name).map(|(_, value)| value.to_owned())
}

/// An error, as the module throws it.
pub fn thrown(error: String) -> JsValue {
    JsValue::from_str(&error)
}
