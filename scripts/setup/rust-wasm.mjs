// Finds or makes a Rust toolchain that can compile to wasm32-unknown-unknown.
//
// Most machines have the target, or get it from rustup in seconds. If rustup can't reach a server, the standard library is built from Debian's
// `rust-src` of exactly the version that `rustc` prints.
//
// Invariants:
// - rustup's own folders are never changed by hand: std goes into a separate toolchain folder below `target/`, which is made under a temporary name
//   and renamed once it is complete.
// - `RUSTC_BOOTSTRAP` is set only to build std, never for the product.

import { cp, link, mkdir, mkdtemp, readFile, readdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { createHash } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { StepError, run, succeeds } from "./step.mjs";
import { TARGET } from "./paths.mjs";

const TRIPLE = "wasm32-unknown-unknown";
const RUSTC_MIN = [1, 95];
const DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg";
/** Checksums of the packages that were reviewed. For another version, apt's signature has to do. */
const DEBIAN_SHA256 = { "1.95.0": "7b76db5b880a77f9e52975d2baa6209d2f76d2c9c2789515c3088cb960e2c83b" };

/**
 * Resolves to the environment in which cargo compiles to wasm, a word on where the target came from, and a target folder for it. The folder differs
 * for each std: cargo does not notice another std of the same version, and would mix what was compiled against each.
 */
export async function rustForWasm() {
  const { env, note } = await findOrMake();
  const libraries = (await run("rustc", ["--print", "target-libdir", "--target", TRIPLE], { env })).trim();
  const std = (await readdir(libraries)).filter((name) => name.startsWith("libstd-")).sort().join();
  const name = createHash("sha256").update(`${await run("rustc", ["-vV"], { env })}\0${std}`).digest("hex").slice(0, 12);
  return { env, note, target: join(TARGET, `wasm-${name}`) };
}

async function findOrMake() {
  const version = await rustcVersion();
  const own = join(TARGET, "wasm-toolchain", version);
  if (await compiles()) return { env: {}, note: "rustc has the target" };
  if (existsSync(own)) return { env: environment(own), note: "own toolchain folder" };
  if (await addByRustup()) return { env: {}, note: "added by rustup" };
  const source = await librarySource(version);
  try {
    await buildStd(version, source.folder, own);
  } finally {
    await source.dispose();
  }
  if (!(await compiles(environment(own)))) {
    await rm(own, { recursive: true, force: true });
    throw new StepError(`The standard library was built, but rustc ${version} does not accept it.`, "Run `rustup target add " + TRIPLE + "`.");
  }
  return { env: environment(own), note: `std of ${version} built from Debian's source` };
}

async function rustcVersion() {
  const advice = "Install Rust 1.95 or newer from https://rustup.rs, and make sure that `cargo` is on PATH.";
  const printed = await run("rustc", ["--version"], { advice });
  const version = printed.split(" ")[1] ?? "";
  const [major, minor] = version.split(".").map(Number);
  if (major < RUSTC_MIN[0] || (major === RUSTC_MIN[0] && minor < RUSTC_MIN[1])) {
    throw new StepError(`rustc is ${version}; 1.95 or newer is needed.`, "Run `rustup update stable`.");
  }
  return version;
}

const environment = (toolchain) => ({ PATH: `${join(toolchain, "bin")}:${process.env.PATH}` });

/** The environment that makes cargo pass these flags to rustc. In this form they may contain spaces, as the checkout's path may. */
export const rustFlags = (flags) => ({ CARGO_ENCODED_RUSTFLAGS: flags.join("\x1f") });

/** Compiles a small library against std. Its output goes into a folder, because `-o /dev/null` as root would replace the device. */
async function compiles(env) {
  const folder = await mkdtemp(join(tmpdir(), "semel-probe-"));
  try {
    await writeFile(join(folder, "probe.rs"), "pub fn probe() -> Vec<u8> { vec![1] }\n");
    const args = ["--edition=2021", "--crate-type=cdylib", `--target=${TRIPLE}`, "--out-dir", folder, join(folder, "probe.rs")];
    return await succeeds("rustc", args, { cwd: folder, env });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function addByRustup() {
  if (!(await succeeds("rustup", ["target", "add", TRIPLE], { timeoutMs: 90_000, cwd: tmpdir() }))) return false;
  return compiles();
}

/** Resolves to the `library/` folder of Rust's source: from `SEMEL_RUST_SRC`, otherwise from Debian. */
async function librarySource(version) {
  if (process.env.SEMEL_RUST_SRC) return { folder: process.env.SEMEL_RUST_SRC, dispose: async () => {} };
  const folder = await mkdtemp(join(tmpdir(), "semel-rust-src-"));
  const dispose = () => rm(folder, { recursive: true, force: true });
  try {
    await downloadFromDebian(version, folder);
    const sources = join(folder, "usr/src");
    const found = existsSync(sources) ? await readdir(sources) : [];
    const name = found.find((entry) => entry.startsWith("rustc-"));
    if (!name) throw new StepError("Debian's package holds no Rust source.");
    return { folder: join(sources, name, "library"), dispose };
  } catch (error) {
    await dispose();
    if (!(error instanceof StepError)) throw error;
    throw new StepError(
      `rustc ${version} lacks the target ${TRIPLE}: rustup could not add it, and Debian's source of that version could not be had.\n${error.message}`,
      `Run \`rustup target add ${TRIPLE}\` where rustup's server can be reached, or set SEMEL_RUST_SRC to the \`library\` folder of Rust ${version}'s source.`,
    );
  }
}

/** Runs apt with its own lists and sources, so that the machine's stay as they are. */
async function downloadFromDebian(version, folder) {
  const sources = join(folder, "sources.list");
  await mkdir(join(folder, "lists/partial"), { recursive: true });
  const suites = ["trixie-backports", "sid"];
  await writeFile(sources, suites.map((suite) => `deb [signed-by=${DEBIAN_KEYRING}] http://deb.debian.org/debian ${suite} main\n`).join(""));
  const options = [
    ...["-o", `Dir::Etc::SourceList=${sources}`, "-o", "Dir::Etc::SourceParts=/dev/null"],
    ...["-o", `Dir::State::Lists=${join(folder, "lists")}`, "-o", `Dir::Cache=${join(folder, "cache")}`],
    ...["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"],
  ];
  await mkdir(join(folder, "cache/archives/partial"), { recursive: true });
  await run("apt-get", [...options, "update"], { cwd: folder, timeoutMs: 180_000 });
  const madison = await run("apt-cache", [...options, "madison", "rust-src"], { cwd: folder });
  const wanted = madison.split("\n").map((line) => line.split("|")[1]?.trim() ?? "").find((candidate) => candidate.startsWith(`${version}+`));
  if (!wanted) throw new StepError(`Debian has no rust-src ${version}.`);
  await run("apt-get", [...options, "download", `rust-src=${wanted}`], { cwd: folder, timeoutMs: 300_000 });
  const deb = (await readdir(folder)).find((entry) => entry.endsWith(".deb"));
  if (!deb) throw new StepError("apt-get downloaded nothing.");
  const sum = createHash("sha256").update(await readFile(join(folder, deb))).digest("hex");
  if (DEBIAN_SHA256[version] && DEBIAN_SHA256[version] !== sum) {
    throw new StepError(`Debian's rust-src ${wanted} has the checksum ${sum}, which is not the one known for ${version}.`);
  }
  await run("dpkg-deb", ["-x", join(folder, deb), folder]);
}

/** Compiles std for wasm in an empty crate. Then makes a toolchain folder of it that shares everything else with rustup's. */
async function buildStd(version, library, own) {
  const sysroot = (await run("rustc", ["--print", "sysroot"])).trim();
  const work = await mkdtemp(join(tmpdir(), "semel-std-"));
  const fresh = `${own}.${process.pid}`;
  try {
    await layToolchain(sysroot, fresh);
    const source = join(fresh, "lib/rustlib/src/rust/library");
    await mkdir(join(fresh, "lib/rustlib/src/rust"), { recursive: true });
    await cp(library, source, { recursive: true, dereference: true });
    await mkdir(join(work, "src"), { recursive: true });
    await mkdir(join(work, ".cargo"), { recursive: true });
    await writeFile(join(work, "Cargo.toml"), '[package]\nname = "empty"\nversion = "0.0.0"\nedition = "2021"\n\n[workspace]\n');
    await writeFile(join(work, "src/lib.rs"), "");
    await writeFile(
      join(work, ".cargo/config.toml"),
      `[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = ${JSON.stringify(join(source, "vendor"))}\n`,
    );
    const flags = ["-Cembed-bitcode=yes", `--remap-path-prefix=${source}=/rustc/library`];
    await run(
      "cargo",
      ["build", "--offline", "--release", "--target", TRIPLE, "-Zbuild-std=std,panic_abort"],
      { cwd: work, env: { ...environment(fresh), RUSTC_BOOTSTRAP: "1", ...rustFlags(flags), CARGO_TARGET_DIR: join(work, "target") } },
    );
    const libraries = join(fresh, "lib/rustlib", TRIPLE, "lib");
    await mkdir(libraries, { recursive: true });
    const built = join(work, "target", TRIPLE, "release/deps");
    for (const file of await readdir(built)) {
      if (file.endsWith(".rlib") && !file.startsWith("libempty-")) await cp(join(built, file), join(libraries, file));
    }
    await rm(join(fresh, "lib/rustlib/src"), { recursive: true });
    await rm(own, { recursive: true, force: true });
    await rename(fresh, own);
  } finally {
    await rm(work, { recursive: true, force: true });
    await rm(fresh, { recursive: true, force: true });
  }
  return version;
}

/** Hard links for the files by which rustc finds its sysroot (a symlink would lead back), symlinks for the rest. */
async function layToolchain(sysroot, toolchain) {
  await mkdir(join(toolchain, "bin"), { recursive: true });
  await mkdir(join(toolchain, "lib/rustlib"), { recursive: true });
  for (const name of await readdir(join(sysroot, "bin"))) await linkOrCopy(join(sysroot, "bin", name), join(toolchain, "bin", name));
  for (const name of await readdir(join(sysroot, "lib"))) {
    if (name.includes(".so")) await linkOrCopy(join(sysroot, "lib", name), join(toolchain, "lib", name));
  }
  for (const name of await readdir(join(sysroot, "lib/rustlib"))) {
    if (name !== "src" && name !== TRIPLE) await symlink(join(sysroot, "lib/rustlib", name), join(toolchain, "lib/rustlib", name));
  }
}

async function linkOrCopy(from, to) {
  try {
    await link(from, to);
  } catch {
    // On another file system, a copy will do; it only takes more room.
    await cp(from, to);
  }
}
