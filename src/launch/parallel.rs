//! Distribution of work to threads.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;

/// Starts one thread for each core of the machine. The threads execute `work` for the numbers below
/// `count`, in order. A thread ends when no number remains, or when `work` has returned false.
pub fn share<'s>(scope: &'s Scope<'s, '_>, count: usize, work: impl Fn(usize) -> bool + Clone + Send + 's) {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get).min(count);
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..workers {
        let (next, work) = (Arc::clone(&next), work.clone());
        scope.spawn(move || {
            let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&at| at < count);
            while take().is_some_and(&work) {}
        });
    }
}
