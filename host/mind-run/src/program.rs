//! Which file a program is, and whether the loader would load a library into it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use object::{
    Endianness,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader as _, ProgramHeader as _},
};

/// How many interpreters of interpreters the kernel allows.
const INTERPRETERS: usize = 5;

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// The bits for execution.
const EXECUTABLE: u32 = 0o111;

fn is_executable(path: &Path) -> bool {
    fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & EXECUTABLE != 0)
}

/// Finds a program as a shell does: a path if it has a slash, else in the folders of `PATH`.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        ensure!(path.exists(), "there is no program {}", path.display());
        ensure!(
            is_executable(&path),
            "{} is no executable file",
            path.display()
        );
        return Ok(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| is_executable(path))
        .with_context(|| {
            format!(
                "there is no program {} in the folders of PATH",
                name.display()
            )
        })
}

/// Checks that the loader would load a library into the program.
pub(crate) fn check(path: &Path) -> Result<()> {
    let mut path = path.to_owned();
    for _ in 0..INTERPRETERS {
        match interpreter(&path)? {
            Some(next) => path = next,
            None => return Ok(()),
        }
    }
    bail!(
        "{} is a script of a script of a script, and so on",
        path.display()
    )
}

/// The program that runs a script; `None` where it is no script, but a program that can be run.
fn interpreter(path: &Path) -> Result<Option<PathBuf>> {
    let name = path.display();
    let metadata = fs::metadata(path).with_context(|| format!("cannot look at {name}"))?;
    let mut file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    // The program headers follow the file's header; a script's interpreter is in its first 256 bytes.
    let mut start = Vec::new();
    file.by_ref()
        .take(64 << 10)
        .read_to_end(&mut start)
        .with_context(|| format!("cannot read {name}"))?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let interpreter = line.trim_ascii().split(u8::is_ascii_whitespace).next();
        let interpreter = interpreter.unwrap_or_default();
        return Ok(Some(PathBuf::from(OsStr::from_bytes(interpreter))));
    }
    ensure!(
        metadata.permissions().mode() & SET_ID == 0,
        "{name} runs as another user (set-user-ID or set-group-ID), so the loader takes no library from this one: MIND \
         cannot give it memory"
    );
    let loader = loader(&start).with_context(|| {
        format!("{name} is no program that this processor's loader runs, or no program at all")
    })?;
    match loader {
        None => bail!(
            "{name} is linked statically, so no library can be loaded into it: MIND cannot give it memory"
        ),
        Some(loader) if !loader.contains("ld-linux") => bail!(
            "{name} is loaded by {loader}, not by the GNU C library's loader: MIND cannot give it memory"
        ),
        Some(_) => Ok(None),
    }
}

/// The loader that a program names; `None` where it is linked statically.
fn loader(start: &[u8]) -> Result<Option<String>> {
    let header = FileHeader64::<Endianness>::parse(start)?;
    let endian = header.endian()?;
    for part in header.program_headers(endian, start)? {
        if part.p_type(endian) == PT_INTERP {
            let offset = part.p_offset(endian) as usize;
            let bytes = start.get(offset..).unwrap_or_default();
            let loader = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            return Ok(Some(String::from_utf8_lossy(loader).into_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn complaint(result: Result<impl Sized>) -> String {
        format!("{:#}", result.err().expect("it is refused"))
    }

    #[test]
    fn what_a_distribution_ships_can_be_run() {
        let shell = find(OsStr::new("sh")).unwrap();
        check(&shell).unwrap();
        check(Path::new("/bin/sh")).unwrap();
    }

    #[test]
    fn a_script_is_what_runs_it() {
        let folder = tempfile::tempdir().unwrap();
        let script = write(folder.path(), "script", b"#! /bin/sh -e\ntrue\n", 0o755);
        check(&script).unwrap();
        let path = script.to_str().unwrap();
        let scripts = (0..INTERPRETERS).fold(path.to_owned(), |below, level| {
            let text = format!("#!{below}\n");
            let script = write(
                folder.path(),
                &format!("script{level}"),
                text.as_bytes(),
                0o755,
            );
            script.to_str().unwrap().to_owned()
        });
        assert!(complaint(check(Path::new(&scripts))).contains("script of a script"));
    }

    #[test]
    fn what_cannot_have_a_library_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let shell = fs::read(find(OsStr::new("sh")).unwrap()).unwrap();
        let other = write(folder.path(), "other", &shell, 0o4755);
        assert!(complaint(check(&other)).contains("another user"));
        let nonsense = write(folder.path(), "nonsense", b"nonsense", 0o755);
        assert!(complaint(check(&nonsense)).contains("no program at all"));
        let empty = write(folder.path(), "empty", b"", 0o755);
        assert!(complaint(check(&empty)).contains("no program at all"));
        let data = write(folder.path(), "data", &shell, 0o644);
        assert!(complaint(find(data.as_os_str())).contains("no executable file"));
        assert!(complaint(find(OsStr::new("/nowhere/at/all"))).contains("there is no program"));
        assert!(complaint(find(OsStr::new("no-such-program"))).contains("PATH"));
    }
}
