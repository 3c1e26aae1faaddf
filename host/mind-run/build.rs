//! The folder in which Debian keeps libraries of this architecture, by its GNU name.

fn main() {
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    println!("cargo::rustc-env=MIND_ARCHITECTURE={architecture}-linux-gnu");
    println!("cargo::rerun-if-changed=build.rs");
}
