//! The counters of a compute blade: the one list from which the blade's machine, the agent's report and the metrics
//! are made.

/// Calls the macro `$then` with the list: for each counter its doc comment, which is also the metric's help, its name,
/// and the name of its metric.
///
/// ```
/// macro_rules! names {
///     ($($(#[doc = $help:literal])+ $name:ident: $metric:literal;)+) => { [$($metric),+] };
/// }
/// assert!(mind_common::blade_counters!(names).contains(&"mind_faults_total"));
/// ```
#[macro_export]
macro_rules! blade_counters {
    ($then:ident) => {
        $then! {
            /// Faults taken.
            faults: "mind_faults_total";
            /// Faults that found the page on the blade, and needed no request.
            hits: "mind_fault_hits_total";
            /// Faults that waited for room in the cache.
            starved: "mind_starved_faults_total";
            /// READ, ACQUIRE and UPGRADE requests begun.
            requests: "mind_page_requests_total";
            /// Requests sent again because no answer came in time.
            timeouts: "mind_timeouts_total";
            /// Requests that were refused because the region is busy.
            busy: "mind_busy_answers_total";
            /// Reports to the controller of requests that do not complete.
            reported_stuck: "mind_stuck_requests_total";
            /// Requests given up because of the deadline.
            expired: "mind_expired_requests_total";
            /// Pages written back to memory.
            write_backs: "mind_write_backs_total";
            /// Pages evicted to make room.
            evictions: "mind_evictions_total";
            /// Invalidations answered.
            invalidations: "mind_invalidations_total";
            /// Pages dropped by an invalidation of their region though the requester did not ask for them.
            false_invalidations: "mind_false_invalidations_total";
            /// Pages whose last writes are lost.
            lost: "mind_lost_pages_total";
            /// Datagrams that answered no request under way, or were for an earlier incarnation of the blade.
            ignored: "mind_ignored_datagrams_total";
        }
    };
}
