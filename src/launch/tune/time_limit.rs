//! A limit of time for each configuration, and what becomes of a search whose device hangs.

use std::fmt;
use std::time::Duration;

use super::key::text_of;
use super::options::Tuner;
use crate::error::{Error, Result};
use crate::runtime::{Device, limited};

/// A kernel that is late has so many limits to end after all.
const PATIENCE: u32 = 10;

/// Why a search is over before its end.
pub(super) struct Ended {
    pub error: Error,
    /// The configuration whose kernel does not end.
    pub stuck: Option<String>,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended { error, stuck: None }
    }
}

impl<S, C: fmt::Debug> Tuner<S, C> {
    /// What `work` for a configuration gives within the limit, or why it fails.
    ///
    /// # Errors
    /// Where its kernels do not end: nothing else can run on the device then.
    pub(super) fn attempt<X>(
        &self,
        device: Device,
        configuration: &C,
        work: impl FnOnce() -> Result<X>,
    ) -> Result<Result<X>, Ended> {
        let Some(limit) = self.limit else { return Ok(work()) };
        let done = limited(limit, "this configuration", work);
        match done {
            Ok(_) => Ok(done),
            Err(_) => ended(device, configuration, limit.saturating_mul(PATIENCE)).map(|()| done),
        }
    }
}

/// Waits until nothing of a configuration that failed runs any more.
fn ended<C: fmt::Debug>(device: Device, configuration: &C, patience: Duration) -> Result<(), Ended> {
    match limited(patience, "", || device.synchronize()) {
        Err(Error::TimedOut { limit, .. }) => {
            let text = text_of(configuration);
            let what = format!(
                "the configuration `{text}`, whose kernel stops only with this process (a search with `Tuner::record` leaves it \
                 out the next time),"
            );
            Err(Ended { error: Error::TimedOut { what, limit }, stuck: Some(text) })
        }
        // What fails here is told by whatever comes next.
        Ok(()) | Err(_) => Ok(()),
    }
}
