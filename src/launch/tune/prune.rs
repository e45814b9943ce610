//! Rejection of candidates by properties of their code: spilled registers, matrix products without
//! tensor cores, or no use of TMA. Each reason applies only if another candidate
//! is better in this respect. The remaining candidates are ranked by an estimate of their time.

use crate::util::collect::CollectVec as _;
use std::time::Duration;

/// Properties of the code of a candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Qualities {
    /// Bytes of spilled registers of a thread.
    pub spilled: u32,
    /// Matrix products, and the number of them on tensor cores.
    pub products: u32,
    pub on_tensor_cores: u32,
    /// Loads and stores, and the number of them by TMA.
    pub accesses: u32,
    pub by_copy_engine: u32,
    /// Estimate of the time of the launch, if known.
    pub estimate: Option<Duration>,
}

/// Returns the reason to reject each candidate, or `None`. The first one, the default, is never
/// rejected.
pub(super) fn reasons(all: &[Qualities], most: Option<usize>) -> Vec<Option<String>> {
    let mut reasons: Vec<Option<String>> = vec![None; all.len()];
    let all_on = |q: &Qualities| q.products > 0 && q.on_tensor_cores == q.products;
    let streamed = |q: &Qualities| q.by_copy_engine > 0;
    let whole = all.iter().any(|q| q.spilled == 0);
    let (tensor_cores, copy_engine) = (all.iter().any(all_on), all.iter().any(streamed));
    for (q, reason) in all.iter().zip(&mut reasons).skip(1) {
        *reason = if whole && q.spilled > 0 {
            Some(format!("{} bytes of registers of a thread are in memory", q.spilled))
        } else if tensor_cores && q.products > 0 && !all_on(q) {
            let missing = q.products - q.on_tensor_cores;
            Some(format!("{missing} of {} matrix products are not done by tensor cores", q.products))
        } else if copy_engine && q.accesses > 0 && !streamed(q) {
            Some("no tile uses TMA, unlike in other configurations".into())
        } else {
            None
        };
    }
    if let Some(most) = most {
        leave_best(all, most.max(1), &mut reasons);
    }
    reasons
}

/// Rejects all but the default and the `most` candidates with the least estimates. Candidates
/// without an estimate remain.
fn leave_best(all: &[Qualities], most: usize, reasons: &mut [Option<String>]) {
    let mut ranked: Vec<(Duration, usize)> = (1..all.len())
        .filter(|&at| reasons[at].is_none())
        .filter_map(|at| all[at].estimate.map(|estimate| (estimate, at)))
        .collect_vec();
    ranked.sort_unstable();
    for (rank, &(estimate, at)) in ranked.iter().enumerate().skip(most) {
        let micros = estimate.as_secs_f64() * 1e6;
        reasons[at] = Some(format!("{} others are estimated to be faster than {micros:.1} us", rank));
    }
}

/// Estimates the time of a launch. `least` is its time at full utilization of the device, and
/// `at_once` the number of blocks of a wave. The last wave takes the time of a full one.
pub(super) fn estimate(least: Duration, blocks: u64, at_once: u64) -> Duration {
    let (blocks, at_once) = (blocks.max(1) as f64, at_once.max(1) as f64);
    let rounds = blocks / at_once;
    least.mul_f64(rounds.ceil() / rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Qualities {
        Qualities { products: 1, on_tensor_cores: 1, accesses: 3, by_copy_engine: 2, ..Qualities::default() }
    }

    #[test]
    fn dominated_configurations_are_left_out() {
        let spills = Qualities { spilled: 64, ..plain() };
        let threads = Qualities { by_copy_engine: 0, ..plain() };
        let fma = Qualities { on_tensor_cores: 0, ..plain() };
        let said =
            |all: &[Qualities]| reasons(all, None).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
        let all = said(&[plain(), spills, threads, fma, plain()]);
        assert!(all[0].is_empty() && all[4].is_empty());
        assert!(all[1].contains("64 bytes") && all[2].contains("TMA") && all[3].contains("1 of 1 matrix"));
        // No candidate is better: all are executed. The default is always executed.
        assert_eq!(said(&[spills, spills]), ["", ""]);
        assert_eq!(said(&[threads, threads]), ["", ""]);
        assert_eq!(said(&[spills, plain()]), ["", ""]);
        // Candidates without matrix products, or with unknown code, are not rejected.
        assert_eq!(said(&[plain(), Qualities::default()]), ["", ""]);
    }

    #[test]
    fn the_best_by_estimate_are_left() {
        let with = |micros| Qualities { estimate: Some(Duration::from_micros(micros)), ..Qualities::default() };
        let all = [with(90), with(30), with(10), Qualities::default(), with(20)];
        let left: Vec<bool> = reasons(&all, Some(2)).iter().map(Option::is_none).collect();
        assert_eq!(left, [true, false, true, true, true]);
        assert!(reasons(&all, None).iter().all(Option::is_none));
    }

    #[test]
    fn a_last_wave_needs_the_time_of_a_full_one() {
        let least = Duration::from_micros(100);
        assert_eq!(estimate(least, 264, 132).as_micros(), 100);
        assert_eq!(estimate(least, 133, 132).as_micros(), 198);
        assert_eq!(estimate(least, 66, 132).as_micros(), 200);
    }
}
