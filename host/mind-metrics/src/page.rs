//! The page that Prometheus reads, at `/metrics`.

use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use prometheus::{Encoder as _, TEXT_FORMAT, TextEncoder, proto::MetricFamily};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use crate::Families;

/// Readers at a time; more wait until one has its page.
const READERS: usize = 16;
/// How long a reader may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How long to wait when a reader cannot be accepted. Nothing tells when there is a descriptor again.
const RETRY: Duration = Duration::from_millis(100);

/// An answer to a reader.
type Page = Response<Full<Bytes>>;

/// Listens for readers of the page.
///
/// # Errors
///
/// When the address is not this host's, or the port is taken.
pub async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot show metrics at {address}; name another with --metrics"))
}

/// Serves the page, gathered anew for each reader, until the task is dropped. A reader has 10 s, then its connection is
/// closed; 16 are served at a time.
pub async fn serve<G, F>(listener: TcpListener, gather: G)
where
    G: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Families> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(READERS));
    loop {
        // It is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(read(stream, gather.clone(), place));
            }
            Err(error) => {
                tracing::warn!(%error, "a reader of metrics was not accepted");
                sleep(RETRY).await;
            }
        }
    }
}

/// Serves one reader.
async fn read<G, F>(stream: TcpStream, gather: G, _place: OwnedSemaphorePermit)
where
    G: Fn() -> F,
    F: Future<Output = Families>,
{
    let answer = service_fn(|request| answer(request, &gather));
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer);
    match timeout(LIMIT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a reader of metrics has gone"),
        Err(_) => tracing::debug!("a reader of metrics took too long"),
    }
}

async fn answer<G, F>(request: Request<Incoming>, gather: &G) -> Result<Page, Infallible>
where
    G: Fn() -> F,
    F: Future<Output = Families>,
{
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    Ok(match request.uri().path() {
        "/" | "/metrics" if !is_read => {
            let mut page = plain(
                StatusCode::METHOD_NOT_ALLOWED,
                "The page is read with GET.\n",
            );
            page.headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            page
        }
        "/metrics" => text(&gather().await.into_families()),
        "/" => plain(StatusCode::OK, "The figures are at /metrics.\n"),
        _ => plain(StatusCode::NOT_FOUND, "The figures are at /metrics.\n"),
    })
}

fn text(families: &[MetricFamily]) -> Page {
    let mut text = Vec::new();
    match TextEncoder::new().encode(families, &mut text) {
        Ok(()) => page(StatusCode::OK, TEXT_FORMAT, text),
        Err(error) => {
            tracing::warn!(%error, "metrics cannot be shown");
            plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
        }
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Page {
    page(status, "text/plain; charset=utf-8", text)
}

fn page(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Page {
    let mut page = Response::new(Full::new(text.into()));
    *page.status_mut() = status;
    page.headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    page
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{Observations, catalogue};

    fn gathered() -> Families {
        let mut families = Families::with_label("blade", "c0");
        families.of(&catalogue::BLADE_COUNTERS.faults).add(&[], 7.0);
        let observed = Observations {
            count: 3,
            sum: 0.5,
            buckets: vec![(0.001, 1), (0.1, 2)],
        };
        families
            .of(&catalogue::FAULT_TIME)
            .observe(&["I->S"], &observed);
        families
    }

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: mind\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_reader_gets_the_text_format() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, async || gathered()));
        let answer = ask(address, "/metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
        for line in [
            "# HELP mind_faults_total Faults taken.",
            "# TYPE mind_fault_seconds histogram",
            "mind_faults_total{blade=\"c0\"} 7",
            "mind_fault_seconds_bucket{blade=\"c0\",transition=\"I->S\",le=\"0.1\"} 2",
            "mind_fault_seconds_bucket{blade=\"c0\",transition=\"I->S\",le=\"+Inf\"} 3",
            "mind_fault_seconds_sum{blade=\"c0\",transition=\"I->S\"} 0.5",
        ] {
            assert!(
                answer.lines().any(|other| other == line),
                "{line}: {answer}"
            );
        }
        let answer = ask(address, "/nothing").await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
        let taken = listen(address).await.unwrap_err().to_string();
        assert!(taken.contains("--metrics"), "{taken}");
        server.abort();
    }

    #[tokio::test]
    async fn readers_that_say_nothing_hold_others_up_for_a_bounded_time() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, async || gathered()));
        let mut silent = Vec::new();
        for _ in 0..2 * READERS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        // The clock goes on by itself once every task waits.
        tokio::time::pause();
        let answer = ask(address, "/metrics").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        server.abort();
    }
}
