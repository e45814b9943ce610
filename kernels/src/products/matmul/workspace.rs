//! Memory that tile blocks of a product share: sums of parts, and flags or tickets.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::{DeviceArray, Stream};

use super::configuration::{Configuration, Share};

/// Sums and flags, as arguments of a launch.
pub(super) type Shared<S> = (DeviceArray<S, 3>, DeviceArray<i32, 1>);

/// Allocates the sums of parts, and the flags or tickets.
pub(super) fn shared<S: Element>(
    stream: &Stream,
    one: Configuration,
    result: [usize; 2],
    multiprocessors: usize,
) -> ct::Result<Option<Shared<S>>> {
    let (parts, flags) = match one.share {
        Share::Tiles | Share::Persistent => return Ok(None),
        Share::Split(parts) => (parts * one.tiles(result), one.tiles(result)),
        Share::Terms => (multiprocessors, multiprocessors),
    };
    let device = stream.device();
    Ok(Some((device.zeros([parts, one.tile[0], one.tile[1]])?, device.zeros([flags])?)))
}
