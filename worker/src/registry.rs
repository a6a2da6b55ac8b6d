//! The registry, as its objects call it: each is a shard, or the coordinator of the registry's jobs, over the object's
//! storage.
//!
//! Invariant: a failure throws, and the caller asks again. Only the coordinator's answers go to a client.

use crate::storage::ObjectSql;
use crate::{settings, wire};
use js_sys::Array;
use semel_core::header;
use semel_core::id::Invalid;
use semel_core::server::Cors;
use semel_core::server::log::{self, Answered, Sample};
use semel_core::server::registry::{Coordinator, Listing, Progress, Report, Shard, Tried, Visit};
use wasm_bindgen::prelude::*;

/// What `registry.js` calls.
#[wasm_bindgen]
pub struct SemelRegistry {
    sql: ObjectSql,
    coordinator: Coordinator,
    cors: Cors,
    log_sample: Sample,
}

#[wasm_bindgen]
impl SemelRegistry {
    /// Makes one over the `ctx.storage` of an object.
    #[wasm_bindgen(constructor)]
    pub fn new(storage: JsValue, settings: &str) -> Result<Self, JsValue> {
        let (config, cors) = settings::read(settings)?;
        let log_sample = Sample::new(config.log_sample_ppm, settings);
        Ok(Self { sql: ObjectSql::new(storage), coordinator: Coordinator::new(config), cors, log_sample })
    }

    /// Takes a key's report in a shard. Returns the instant before which the key has to forget, in Unix seconds.
    /// Undefined if the shard did not list the key as reported; objects of an earlier build read that as 0.
    pub fn report(&self, shard: u8, report: &Array, now_ms: f64) -> Result<Option<f64>, JsValue> {
        let report = wire::received(report, Report::from_row)?;
        let before_s = self.shard(shard).report(&report, wire::instant_ms(now_ms));
        before_s.map(|before_s| before_s.map(|before_s| before_s as f64)).map_err(|error| wire::error(&error))
    }

    /// A shard's part of a listing: the total, and the first rows.
    pub fn list(&self, shard: u8, path: &str) -> Result<Array, JsValue> {
        let listing = Listing::parse(path).map_err(|Invalid(reason)| JsValue::from_str(&reason))?;
        let (total, rows) = self.shard(shard).list(&listing).map_err(|error| wire::error(&error))?;
        let rows: Array = rows.iter().map(wire::array).collect();
        Ok(Array::of2(&JsValue::from(total as f64), &rows))
    }

    /// The number of keys in a shard.
    pub fn count(&self, shard: u8) -> Result<f64, JsValue> {
        self.shard(shard).count().map(|count| count as f64).map_err(|error| wire::error(&error))
    }

    /// The keys that a shard has to visit next for a job, with their place in the shard.
    pub fn visit(&self, shard: u8, id: f64, before_s: f64) -> Result<Array, JsValue> {
        let visit = self.shard(shard).visit(id as i64, before_s as i64);
        visit.map(|visit| wire::array(&visit.to_row())).map_err(|error| wire::error(&error))
    }

    /// Takes the result of a visit, key by key. Returns how far the shard is.
    pub fn visited(&self, shard: u8, id: f64, visit: &Array, tried: Vec<String>) -> Result<Array, JsValue> {
        let tried: Vec<Tried> = tried.iter().map(|word| Tried::from_word(word)).collect();
        let visit = wire::received(visit, Visit::from_row)?;
        let progress = self.shard(shard).visited(id as i64, &visit, &tried);
        progress.map(|progress| wire::array(&progress.to_row())).map_err(|error| wire::error(&error))
    }

    /// Answers an attempt at the coordinator. `keys`: the number of keys of each shard, as far as they are known.
    #[expect(clippy::too_many_arguments, reason = "one call, and nothing to make on the other side")]
    pub fn handle(
        &mut self,
        method: &str,
        pathname: &str,
        search: &str,
        headers: &str,
        body: Option<Vec<u8>>,
        keys: Vec<f64>,
        arrived_ms: f64,
        now_ms: f64,
    ) -> Result<Array, JsValue> {
        let invalid = |Invalid(reason)| JsValue::from_str(&reason);
        let body_too_large = body.is_none();
        let request = wire::request(method, (pathname, search), headers, body.unwrap_or_default()).map_err(invalid)?;
        let principal = header::principal(&request.headers).map_err(invalid)?;
        let principal = principal.ok_or_else(|| JsValue::from_str("no Semel-Principal"))?;
        let keys = keys.into_iter().map(|count| count as i64).collect();
        let wall_ms = wire::instant_ms(now_ms);
        let asked = (&request, body_too_large);
        let answer = self.coordinator.handle(&self.sql, asked, &principal, keys, wall_ms).map_err(invalid)?;
        let answered = Answered {
            now_ms: wall_ms,
            took_ms: wire::instant_ms(now_ms - arrived_ms),
            by: "registry",
            method,
            headers: &request.headers,
            key: None,
        };
        let line = log::line(self.log_sample, &answered, &answer);
        Ok(wire::stamped(answer, &self.cors, &request.headers, line))
    }

    /// The jobs that are not done, each as `[id, before in Unix seconds, shards]`.
    pub fn jobs(&self) -> Result<Array, JsValue> {
        let jobs = self.coordinator.jobs(&self.sql).map_err(|error| wire::error(&error))?;
        Ok(jobs
            .into_iter()
            .map(|job| {
                let shards: Array = job.shards.into_iter().map(JsValue::from).collect();
                Array::of3(&JsValue::from(job.id as f64), &JsValue::from(job.before_s as f64), &shards)
            })
            .collect())
    }

    /// Tells the coordinator how far a shard's part of a job is.
    pub fn told(&self, id: f64, shard: u8, progress: &Array) -> Result<(), JsValue> {
        let progress = wire::received(progress, Progress::from_row)?;
        self.coordinator.told(&self.sql, id as i64, shard, &progress).map_err(|error| wire::error(&error))
    }

    fn shard(&self, number: u8) -> Shard<'_> {
        Shard::new(&self.sql, number)
    }
}

/// The number of shards.
#[wasm_bindgen]
pub fn registry_shards() -> u8 {
    semel_core::server::registry::SHARDS
}
