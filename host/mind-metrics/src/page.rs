//! The page that Prometheus reads, at `/metrics`.

use std::{future::Future, io, net::SocketAddr};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus::{Encoder as _, TEXT_FORMAT, TextEncoder, proto::MetricFamily};
use tokio::net::TcpListener;

use crate::Families;

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

/// Serves the page, gathered anew for each reader, until the task is dropped.
///
/// # Errors
///
/// When the listener ends.
pub async fn serve<G, F>(listener: TcpListener, gather: G) -> io::Result<()>
where
    G: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Families> + Send,
{
    let page = move || {
        let gather = gather.clone();
        async move { text(&gather().await.into_families()) }
    };
    let pages = Router::new()
        .route("/metrics", get(page))
        .route("/", get(async || "The figures are at /metrics.\n"));
    axum::serve(listener, pages).await
}

fn text(families: &[MetricFamily]) -> Response {
    let mut text = Vec::new();
    match TextEncoder::new().encode(families, &mut text) {
        Ok(()) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Err(error) => {
            tracing::warn!(%error, "metrics cannot be shown");
            (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
        }
    }
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
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
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
}
