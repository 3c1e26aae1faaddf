//! The fault bench, with few faults.

/// Faults of each transition.
const SAMPLES: u64 = 20;

#[test]
fn a_fault_has_all_figures() {
    let samples = format!("--samples={SAMPLES}");
    let Some(report) = crate::run(&["fault", "--evict-ms=300", &samples]) else {
        return;
    };
    for limit in ["userfault_us", "network_us"] {
        report.figure(&format!("/limits/{limit}"));
    }
    for name in ["first_touch", "i_s", "s_s", "i_m", "s_m", "m_s", "m_m"] {
        let [p50, p99, count] = ["p50_us", "p99_us", "count"]
            .map(|figure_of| report.figure(&format!("/transitions/{name}/{figure_of}")));
        assert!(p50 <= p99, "{name}");
        assert!(count >= SAMPLES as f64, "{name}");
    }
    for threads in ["t1", "t8"] {
        report.figure(&format!("/evicting_faults_per_s/{threads}"));
    }
}
