//! The control bench, with few requests, also while a blade hangs.

#[test]
fn the_controller_has_all_figures() {
    let args = ["control", "--samples=5", "--vmas=1,20", "--compute=12"];
    let args = [&args[..], &["--memory=2", "--rate-ms=200"]].concat();
    let Some(report) = crate::run(&args) else {
        return;
    };
    for kind in ["map", "unmap", "protect", "open", "attach"] {
        for vmas in [1, 20] {
            report.figure(&format!("/{kind}_at_vmas_us/{vmas}/p99"));
        }
        report.figure(&format!("/hung/{kind}_ms/p99"));
    }
    for pointer in [
        "/map_us/4k/p50",
        "/hung/status_ms/p99",
        "/hung/metrics_ms/p99",
        "/hung/ops_per_s",
        "/ops_per_s",
        "/limits/commit_us/p50",
        "/limits/round_trip_us/p50",
    ] {
        report.figure(pointer);
    }
}
