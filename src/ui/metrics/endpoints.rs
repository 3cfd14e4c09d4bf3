//! Two listeners, as Karpenter has them: one for monitoring, one for probes.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::Metrics;
use crate::io::clock;
use crate::ui::exit::Failure;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where the program may be asked how it is.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Monitoring")]
pub struct EndpointArgs {
    /// Serve /metrics on this address, such as 0.0.0.0:8080
    #[arg(long, value_name = "ADDRESS", env = "PROVISOR_METRICS_ADDRESS")]
    pub metrics_address: Option<SocketAddr>,
    /// Serve /healthz and /readyz on this address, such as 0.0.0.0:8081
    #[arg(long, value_name = "ADDRESS", env = "PROVISOR_HEALTH_ADDRESS")]
    pub health_address: Option<SocketAddr>,
    /// Leave the series of single pods, nodes and pools out of /metrics
    #[arg(long, env = "DISABLE_CLUSTER_STATE_OBSERVABILITY")]
    pub disable_cluster_state_observability: bool,
}

/// Listens where the arguments say, until what it returns is dropped. Both may be the same address.
pub async fn serve(args: &EndpointArgs, metrics: &Metrics) -> Result<JoinSet<()>, Failure> {
    let mut listening = JoinSet::new();
    let (monitoring, probes) = (monitoring(), probes());
    let routers = match (args.metrics_address, args.health_address) {
        (Some(one), Some(other)) if one == other => vec![(one, monitoring.merge(probes))],
        (one, other) => {
            one.map(|at| (at, monitoring)).into_iter().chain(other.map(|at| (at, probes))).collect()
        }
    };
    for (address, router) in routers {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Failure::outside(format!("nobody can listen on {address}")).caused_by(&error))?;
        let router = router.with_state(metrics.clone());
        listening.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!("{address} does not answer any more: {error}");
            }
        });
    }
    Ok(listening)
}

fn monitoring() -> Router<Metrics> {
    Router::new().route("/metrics", get(scrape))
}

fn probes() -> Router<Metrics> {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(readiness))
}

async fn scrape(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics.text(clock::now()))
}

async fn readiness(State(metrics): State<Metrics>) -> impl IntoResponse {
    match metrics.is_ready() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the cluster is not read yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers");
        answer
    }

    #[tokio::test]
    async fn both_are_served_where_they_were_asked_for() {
        let free = || async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            listener.local_addr().expect("it is bound")
        };
        let (one, other) = (free().await, free().await);
        let metrics = Metrics::new();
        let args = EndpointArgs {
            metrics_address: Some(one),
            health_address: Some(other),
            ..EndpointArgs::default()
        };
        let listening = serve(&args, &metrics).await.expect("they are free");
        assert_eq!(listening.len(), 2);
        let scraped = ask(one, "/metrics").await;
        assert!(scraped.contains("openmetrics-text") && scraped.ends_with("# EOF\n"), "{scraped}");
        assert!(ask(one, "/healthz").await.starts_with("HTTP/1.1 404"));
        assert!(ask(other, "/healthz").await.starts_with("HTTP/1.1 200"));
        assert!(ask(other, "/readyz").await.starts_with("HTTP/1.1 503"));
        metrics.set_ready();
        assert!(ask(other, "/readyz").await.starts_with("HTTP/1.1 200"));
        let taken = serve(&args, &metrics).await;
        assert!(taken.is_err(), "an address is served once");
    }
}
