//! The `wasm-pack` command, as its own crate has it, but for its background look-up of newer versions: a test asks no
//! server.
use clap::Parser;
use wasm_pack::{Cli, PBAR, command::run_wasm_pack};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Cli::parse();
    PBAR.set_log_level(args.log_level);
    PBAR.set_quiet(args.quiet);
    Ok(run_wasm_pack(args.cmd)?)
}
