//! A deployment's settings, as `host.js` hands them over: one `NAME=value` a line.

use semel_core::server::Config;
use wasm_bindgen::JsValue;

/// Reads the settings. An unreadable one throws where the instance is made: nothing is served on a guess.
pub fn read(settings: &str) -> Result<Config, JsValue> {
    let setting = |name: &str| {
        let found = settings.lines().filter_map(|line| line.split_once('=')).find(|(each, _)| *each == name);
        found.map(|(_, value)| value.to_owned())
    };
    Config::from_settings(setting).map_err(|error| JsValue::from_str(&error))
}
