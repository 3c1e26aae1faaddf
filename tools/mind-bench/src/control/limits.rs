//! What no request can be faster than: a transaction of records like the controller's, and a round trip of a frame over
//! the testbed's links.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    time::Instant,
};

use anyhow::{Context as _, Result};
use mind_api::{
    Request,
    message::{Access, Frame},
};
use mind_connection::frame;
use netns_setup::{Plan, Testbed, paths, plan::SWITCH};
use redb::{Database, TableDefinition};

/// Records, as the controller's store has them.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// Bytes of a record: a vma and the answer to its request take about as many.
const RECORD: [u8; 256] = [b'x'; 256];

/// Nanoseconds of transactions in a file beside the controller's records, each with the durability that those have,
/// redb's default.
pub(super) fn commits(count: usize) -> Result<Vec<u64>> {
    commits_in(&Path::new(paths::RUN).join("bench.redb"), count)
}

fn commits_in(path: &Path, count: usize) -> Result<Vec<u64>> {
    let database = Database::create(path)
        .with_context(|| format!("cannot keep records in {}", path.display()))?;
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let begin = Instant::now();
        let write = database.begin_write()?;
        write
            .open_table(RECORDS)?
            .insert(format!("vma/{number}").as_str(), RECORD.as_slice())?;
        write.commit()?;
        times.push(begin.elapsed().as_nanos() as u64);
    }
    drop(database);
    std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(times)
}

/// Nanoseconds of round trips of a request's bytes between the blade called `blade` and the switch.
pub(super) fn round_trips(testbed: &Testbed, blade: &str, count: usize) -> Result<Vec<u64>> {
    let listener = testbed.within(SWITCH, || {
        TcpListener::bind((Plan::switch_address(), 0)).context("cannot listen on the switch")
    })?;
    let address = listener.local_addr()?;
    let stream = testbed.within(blade, || {
        TcpStream::connect(address).with_context(|| format!("cannot reach the switch from {blade}"))
    })?;
    echoed(&listener, stream, count)
}

fn echoed(listener: &TcpListener, mut stream: TcpStream, count: usize) -> Result<Vec<u64>> {
    let request = frame::encode(&Frame::Request {
        id: 1,
        answered: 1,
        body: Request::Map {
            domain: 1,
            length: 4096,
            access: Access::Write,
        },
    })?;
    let (mut other, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    other.set_nodelay(true)?;
    let length = request.len();
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || -> std::io::Result<()> {
            let mut bytes = vec![0; length];
            for _ in 0..count {
                other.read_exact(&mut bytes)?;
                other.write_all(&bytes)?;
            }
            Ok(())
        });
        let mut bytes = vec![0; length];
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begin = Instant::now();
            stream.write_all(&request)?;
            stream.read_exact(&mut bytes)?;
            times.push(begin.elapsed().as_nanos() as u64);
        }
        match echo.join() {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(times)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_is_timed_and_the_file_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bench.redb");
        let times = commits_in(&path, 3).expect("records can be kept");
        assert!(times.len() == 3 && times.iter().all(|nanos| *nanos > 0));
        assert!(!path.exists());
    }

    #[test]
    fn each_round_trip_is_timed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let stream = TcpStream::connect(address).expect("it listens");
        let times = echoed(&listener, stream, 5).expect("it is echoed");
        assert!(times.len() == 5 && times.iter().all(|nanos| *nanos > 0));
    }
}
