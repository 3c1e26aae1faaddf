//! `mind run`: finds the program, the library that replaces its allocation, and the blade's agent, and becomes the
//! program.

use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use mind_api::run::Options;
use mind_client::SOCKET_VARIABLE;
use mind_connection::packets::Packets;

use crate::{program, refused};

/// The library that is loaded into the program.
const LIBRARY: &str = "libmind_preload.so";

/// The variable that names libraries for the loader.
const LOADER_VARIABLE: &str = "LD_PRELOAD";

/// What `mind run` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// From which size on what the program maps or allocates is on other machines.
    #[arg(long, value_name = "SIZE", default_value = "256K", value_parser = mind_cli::whole_pages)]
    min_alloc: u64,
    /// How much of its smaller blocks each process keeps in this machine's memory; 0 for none.
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size_or_none)]
    local_heap: u64,
    /// The socket of the blade's agent.
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE, default_value = "/run/mind-blade.sock")]
    socket: PathBuf,
    /// Have each process say at its end, on standard error, what it had where.
    #[arg(long)]
    report: bool,
    /// The program and its arguments.
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    program: Vec<OsString>,
}

fn size_or_none(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        text => mind_cli::whole_pages(text),
    }
}

/// Becomes the program; returns only if that fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let [name, arguments @ ..] = args.program.as_slice() else {
        bail!("there is no program");
    };
    let path = program::find(name)?;
    program::check(&path)?;
    let library = library()?;
    // The connection is the program's own; this one only says early what would fail late.
    Packets::connect(&args.socket).with_context(|| {
        format!(
            "no agent of a compute blade listens at {}: start `mind-blade compute` on this host, name its socket by \
             --socket, or run this in a testbed's blade (`netns-setup exec BLADE -- mind run ...`)",
            args.socket.display()
        )
    })?;
    refused::refuse().context("cannot refuse io_uring to the program")?;
    let options = Options {
        min_alloc: args.min_alloc,
        local_heap: args.local_heap,
        report: args.report,
    };
    let error = Command::new(&path)
        .arg0(name)
        .args(arguments)
        .envs(options.to_environment())
        .env(SOCKET_VARIABLE, &args.socket)
        .env(LOADER_VARIABLE, preloaded(&library))
        .exec();
    Err(error).with_context(|| format!("cannot run {}", path.display()))
}

/// Where the library is: beside this program (as it is built), or where it is installed for this program's prefix.
fn library() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let architecture = concat!("../lib/", env!("MIND_ARCHITECTURE"), "/mind");
    let places = ["", "../lib/mind", architecture].map(|place| folder.join(place).join(LIBRARY));
    let found = places.iter().find(|place| place.is_file());
    let found = found.with_context(|| {
        let [built, installed, other] = places.each_ref().map(|place| place.display());
        format!(
            "there is no {LIBRARY}, neither {built} nor {installed} nor {other}: install MIND whole"
        )
    })?;
    found
        .canonicalize()
        .with_context(|| format!("cannot find {}", found.display()))
}

/// What the loader is told: this library before others.
fn preloaded(library: &Path) -> OsString {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(LOADER_VARIABLE).filter(|others| !others.is_empty()) {
        all.push(OsStr::new(":"));
        all.push(others);
    }
    all
}
