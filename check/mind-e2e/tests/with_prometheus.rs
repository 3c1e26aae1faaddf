//! Prometheus watches a testbed: the server itself, with the configuration and the dashboard that the project offers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use mind_e2e::{Bed, Domain, companion, suite};
use serde_json::Value;

/// Where the server answers, in the switch's namespace.
const SERVER: &str = "127.0.0.1:9090";
/// How long a series may take to be there: it begins with a few scrapes, one each second.
const LIMIT: Duration = Duration::from_secs(40);
/// How often the server is polled, since there is no event for a scrape.
const PAUSE: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    suite::run(
        &[
            ("names_and_help_are_as_promtool_wants_them", pages),
            ("all_queries_of_the_dashboard_have_series", dashboard),
        ],
        // As many blades as the configuration lists.
        || Bed::up(2, 2, 1 << 20),
    )
}

/// A file of the project's for monitoring.
fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(name)
}

/// A page of the testbed.
fn fetch(bed: &Bed, url: &str) -> Result<String> {
    bed.testbed().within("sw", || {
        let mut answer = ureq::get(url)
            .call()
            .with_context(|| format!("cannot get {url}"))?;
        Ok(answer.body_mut().read_to_string()?)
    })
}

fn pages(bed: &Bed) -> Result<()> {
    let promtool = companion::find("promtool")?;
    let plan = bed.testbed().plan();
    let blades = plan.blades.iter().map(|blade| blade.metrics());
    for address in blades.chain([netns_setup::Plan::controller_metrics()]) {
        let page = fetch(bed, &format!("http://{address}/metrics"))?;
        ensure!(page.contains("mind_"), "{address} shows {page}");
        ensure!(
            !page.contains("198.18."),
            "a label of {address} is an address"
        );
        let mut tool = Command::new(&promtool)
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", promtool.display()))?;
        let mut stdin = tool.stdin.take().context("promtool has no input")?;
        std::io::Write::write_all(&mut stdin, page.as_bytes())?;
        drop(stdin);
        let output = tool.wait_with_output()?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() && complaints.is_empty(),
            "promtool on {address}: {complaints}"
        );
    }
    Ok(())
}

/// A Prometheus server; it ends with this value.
struct Server<'a> {
    bed: &'a Bed,
    process: Child,
    folder: PathBuf,
}

impl<'a> Server<'a> {
    fn start(bed: &'a Bed) -> Result<Self> {
        let program = companion::find("prometheus")?;
        let folder = std::env::temp_dir().join(format!("mind-prometheus-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let log = fs::File::create(folder.join("log"))?;
        let mut command = Command::new(&program);
        command
            .arg(format!(
                "--config.file={}",
                contrib("prometheus/testbed.yml").display()
            ))
            .arg(format!("--web.listen-address={SERVER}"))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let process = bed.testbed().spawn("sw", &mut command)?;
        Ok(Self {
            bed,
            process,
            folder,
        })
    }

    /// The series that a query finds.
    fn query(&self, query: &str) -> Result<Vec<Value>> {
        let url = format!("http://{SERVER}/api/v1/query");
        self.bed.testbed().within("sw", || {
            let answer: Value = ureq::get(&url)
                .query("query", query)
                .config()
                .http_status_as_error(false)
                .build()
                .call()?
                .body_mut()
                .read_json()?;
            ensure!(answer["status"] == "success", "{query}: {answer}");
            let series = answer["data"]["result"].as_array();
            Ok(series.cloned().unwrap_or_default())
        })
    }

    /// Waits until a query finds series.
    fn await_series(&self, query: &str, deadline: Instant) -> Result<Vec<Value>> {
        loop {
            let found = self.query(query);
            match found {
                Ok(series) if !series.is_empty() => return Ok(series),
                _ if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Ok(_) => bail!("no series for {query}"),
                Err(error) => {
                    let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    return Err(error.context(format!("Prometheus says\n{log}")));
                }
            }
        }
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The queries of the dashboard, as Grafana would send them.
fn queries() -> Result<Vec<String>> {
    let path = contrib("grafana/mind.json");
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries: Vec<_> = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str())
        .map(|query| {
            query
                .replace("$__rate_interval", "10s")
                .replace("$blade", ".*")
        })
        .collect();
    ensure!(
        queries.len() > 30,
        "the dashboard has few queries: {queries:?}"
    );
    Ok(queries)
}

fn dashboard(bed: &Bed) -> Result<()> {
    let server = Server::start(bed)?;
    let domain = Domain::new(bed, "watched")?;
    // Both work until the end: rates are there while something goes on.
    let mut programs = Vec::new();
    for blade in ["c0", "c1"] {
        let mut program = domain.start(blade, "--area page increment 0")?;
        program.go()?;
        program.expect("at work")?;
        programs.push(program);
    }
    let deadline = Instant::now() + LIMIT;
    let up = "sum(up) == 5";
    server.await_series(up, deadline)?;
    for query in queries()? {
        server.await_series(&query, deadline)?;
    }
    let faults = server.await_series("sum(rate(mind_faults_total[10s])) > 0", deadline)?;
    ensure!(faults.len() == 1, "{faults:?}");
    // The series have the values of the blades' own counters.
    let counted = server.query("sum(mind_cache_capacity_bytes)")?;
    ensure!(counted[0]["value"][1] == "2097152", "{counted:?}");
    for program in programs {
        program.kill()?;
    }
    domain.end()
}
