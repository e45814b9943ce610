//! Sums on the host: for the cpu device, and for GPUs where there is no NCCL.

use cutlet as ct;

use crate::ranks::{AllReduce, Rank, Summed, check};

/// Ranks on any devices, whose arrays go through the host to be added up, in f64 and in the order
/// of the ranks.
#[derive(Debug)]
pub struct OnHost {
    ranks: Vec<Rank>,
}

impl OnHost {
    /// A rank on each of these devices, several of which may be the same one.
    ///
    /// # Errors
    /// [`ct::Error::Driver`] where a device has no stream.
    pub fn new(devices: &[ct::Device]) -> ct::Result<OnHost> {
        let rank = |&device: &ct::Device| Ok(Rank { device, stream: device.stream()? });
        Ok(OnHost { ranks: devices.iter().map(rank).collect::<ct::Result<_>>()? })
    }
}

impl AllReduce for OnHost {
    fn ranks(&self) -> &[Rank] {
        &self.ranks
    }

    #[track_caller]
    fn sum<T: Summed, const R: usize>(&self, parts: &mut [ct::DeviceArray<T, R>]) -> ct::Result<()> {
        check(&self.ranks, parts)?;
        let [first, rest @ ..] = parts else { return Ok(()) };
        if rest.is_empty() {
            return Ok(());
        }
        let mut sums: Vec<f64> = first.to_vec()?.into_iter().map(|x| x.to_f64()).collect();
        for part in &*rest {
            sums.iter_mut().zip(part.to_vec()?).for_each(|(sum, x)| *sum += x.to_f64());
        }
        let sums: Vec<T> = sums.into_iter().map(T::from_f64).collect();
        parts.iter_mut().try_for_each(|part| part.copy_from(&sums))
    }
}
