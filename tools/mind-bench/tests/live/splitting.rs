//! The splitting bench, with one short round.

#[test]
fn splitting_has_all_figures() {
    let args = ["splitting", "--rounds=1", "--round-ms=3000", "--regions=20"];
    let Some(report) = crate::run(&args) else {
        return;
    };
    for pointer in [
        "/false_invalidations_per_s/first_second",
        "/settled_s",
        "/splits",
        "/slots/most",
        "/passes_per_s/stable",
        "/passes_per_s/without",
        "/probe/with/p99_us",
        "/probe/without/p99_us",
        "/probe/p99_ratio",
    ] {
        report.figure(pointer);
    }
}
