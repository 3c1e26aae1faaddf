//! Says in words what is missing when the eBPF objects were not built first.

fn main() {
    need("MIND_EBPF_OBJECT");
    if std::env::var_os("CARGO_FEATURE_HARNESS").is_some() {
        need("MIND_EBPF_HARNESS_OBJECT");
    }
}

fn need(object: &str) {
    println!("cargo::rerun-if-env-changed={object}");
    match std::env::var(object) {
        Ok(path) => println!("cargo::rerun-if-changed={path}"),
        Err(_) => println!(
            "cargo::error={object} is not set: this crate contains the eBPF object. Build with `cargo xtask build`, \
             test with `cargo xtask test`, or set {object} to the path of the object below `target/bpf`."
        ),
    }
}
