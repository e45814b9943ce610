//! Time limit for each configuration, and the end of a search whose device hangs.

use std::fmt;
use std::time::Duration;

use super::key::text_of;
use super::options::Tuner;
use crate::error::{Error, Result};
use crate::runtime::{Device, limited};

/// Ratio of the time in which a late kernel must end to the limit.
const PATIENCE: u32 = 10;

/// Error that ends a search early.
pub(super) struct Ended {
    pub error: Error,
    /// Configuration whose kernel does not end.
    pub stuck: Option<String>,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended { error, stuck: None }
    }
}

impl<S, C: fmt::Debug> Tuner<S, C> {
    /// Executes `work` for a configuration with the limit; returns its result or its failure.
    ///
    /// # Errors
    /// If the kernels do not end: the device is then unusable.
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

/// Waits until no work of a failed configuration is in progress.
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
        // The next operation reports other errors.
        Ok(()) | Err(_) => Ok(()),
    }
}
