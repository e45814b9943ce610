//! Memory that tile blocks of a product share: sums of parts, and flags or tickets.

use cutlet as ct;
use cutlet::element::Number;
use cutlet::{Device, DeviceArray, DeviceViewMut};

use super::configuration::{Configuration, Share};

/// Memory for products whose terms several tile blocks share. Launches with a workspace do not
/// allocate, once it is large enough: after the first launch of the largest product. Launches with
/// one workspace belong to one stream.
#[derive(Debug)]
pub struct Workspace {
    sums: DeviceArray<f32, 1>,
    /// Zero between two launches.
    flags: DeviceArray<i32, 1>,
}

ct::impl_graph_resource!(Workspace { sums, flags });

impl Workspace {
    /// Returns a workspace without memory for sums.
    ///
    /// # Errors
    /// Those of the allocation.
    pub fn new(device: Device) -> ct::Result<Workspace> {
        Ok(Workspace { sums: device.zeros([0])?, flags: device.zeros([0])? })
    }

    /// Allocates memory for sums of parts and flags, if there is less.
    fn grow(&mut self, sums: usize, flags: usize) -> ct::Result<()> {
        let device = self.sums.device();
        if self.sums.len() < sums {
            self.sums = device.zeros([sums])?;
        }
        if self.flags.len() < flags {
            self.flags = device.zeros([flags])?;
        }
        Ok(())
    }
}

/// Types of accumulators: f32, f64, i32.
pub trait Sums: Number {
    /// Returns a part of the memory of a workspace, if it has this type.
    #[doc(hidden)]
    fn of_workspace(
        memory: &mut DeviceArray<f32, 1>,
        shape: [usize; 3],
    ) -> Option<ct::Result<DeviceViewMut<'_, Self, 3>>> {
        let _ = (memory, shape);
        None
    }
}

impl Sums for f32 {
    fn of_workspace(
        memory: &mut DeviceArray<f32, 1>,
        shape: [usize; 3],
    ) -> Option<ct::Result<DeviceViewMut<'_, f32, 3>>> {
        let count = shape.iter().product::<usize>();
        Some(memory.slice_mut(0, ..count).and_then(|memory| memory.reshape(shape)))
    }
}
impl Sums for f64 {}
impl Sums for i32 {}

/// Sums and flags of one launch.
pub(super) struct Shared<S> {
    sums: Option<DeviceArray<S, 3>>,
    /// The workspace of a launch without one of the caller.
    own: Option<Workspace>,
    shape: [usize; 3],
    flags: usize,
}

impl<S: Sums> Shared<S> {
    /// Returns the memory of a configuration for a number of tiles; none if tile blocks share
    /// nothing.
    pub fn new(
        device: Device,
        one: Configuration,
        tiles: usize,
        multiprocessors: usize,
        given: Option<&mut Workspace>,
    ) -> ct::Result<Option<Shared<S>>> {
        let (parts, flags) = match one.share {
            Share::Tiles | Share::Persistent | Share::Parts(_) => return Ok(None),
            Share::Split(parts) => (parts * tiles, tiles),
            Share::Terms => (multiprocessors, multiprocessors),
        };
        let shape = [parts, one.tile[0], one.tile[1]];
        // A graph makes no array, also none without elements.
        let mut own = if given.is_none() { Some(Workspace::new(device)?) } else { None };
        let mut sums = None;
        if let Some(workspace) = given.or(own.as_mut()) {
            let of_workspace = S::of_workspace(&mut workspace.sums, [0; 3]).is_some();
            workspace.grow(if of_workspace { shape.iter().product() } else { 0 }, flags)?;
            if !of_workspace {
                sums = Some(device.zeros(shape)?);
            }
        }
        Ok(Some(Shared { sums, own, shape, flags }))
    }

    /// Returns the views of sums and flags.
    #[allow(clippy::type_complexity, reason = "arguments of a launch")]
    pub fn views<'a>(
        &'a mut self,
        given: Option<&'a mut Workspace>,
    ) -> ct::Result<(DeviceViewMut<'a, S, 3>, DeviceViewMut<'a, i32, 1>)> {
        let Some(Workspace { sums, flags }) = given.or(self.own.as_mut()) else {
            return Err(ct::Error::Argument(ct::Diagnostic::new("no workspace", None)));
        };
        let flags = flags.slice_mut(0, ..self.flags)?;
        match &mut self.sums {
            Some(sums) => Ok((sums.view_mut(), flags)),
            None => match S::of_workspace(sums, self.shape) {
                Some(sums) => Ok((sums?, flags)),
                None => Err(ct::Error::Argument(ct::Diagnostic::new("no memory for sums", None))),
            },
        }
    }
}
