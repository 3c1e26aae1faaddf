//! Where operators of this host come in: a Unix socket, which is reached from every network namespace.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::net::{UnixListener, UnixStream};

/// The socket; removed with this value.
pub(super) struct Door {
    listener: UnixListener,
    path: PathBuf,
}

impl Door {
    /// Listens at `path`; the socket of a controller that has died is replaced.
    ///
    /// # Errors
    ///
    /// When another controller listens there, or something else is there, or it cannot be made.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        match fs::symlink_metadata(path) {
            Ok(found) => {
                ensure!(
                    found.file_type().is_socket(),
                    "{shown} is there and is no socket: name another path with --socket"
                );
                match std::os::unix::net::UnixStream::connect(path) {
                    Ok(_) => bail!(
                        "another controller listens for operators at {shown}: name another path with --socket"
                    ),
                    Err(_) => fs::remove_file(path)
                        .with_context(|| format!("cannot remove the old socket {shown}"))?,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
        }
        let listener = UnixListener::bind(path)
            .with_context(|| format!("cannot listen for operators at {shown}"))?;
        let door = Self {
            listener,
            path: path.to_owned(),
        };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .with_context(|| format!("cannot keep others away from {shown}"))?;
        Ok(door)
    }

    /// The next operator.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // No connection comes in any more, whether it can be removed or not.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_old_socket_is_replaced_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ctl.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a controller that died leaves its socket");
        let door = Door::open(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = Door::open(&path).err().unwrap().to_string();
        assert!(error.contains("another controller"), "{error}");
        drop(door);
        assert!(!path.exists());
        fs::write(&path, "text").unwrap();
        let error = Door::open(&path).err().unwrap().to_string();
        assert!(error.contains("is no socket"), "{error}");
    }
}
