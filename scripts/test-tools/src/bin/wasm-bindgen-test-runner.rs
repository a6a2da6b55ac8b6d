//! The `wasm-bindgen-test-runner` command, as its own crate has it.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args(std::env::args_os())?)
}
