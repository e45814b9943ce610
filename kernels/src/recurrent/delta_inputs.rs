//! Inputs of the delta rules.

use cutlet as ct;
use cutlet::DeviceView;
use cutlet::prelude::*;

use crate::check::require;

/// Inputs of a delta rule. Several heads of values may share a head of keys.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a, T: Element, const GATES: usize> {
    /// Queries (batch, tokens, key heads, key channels).
    pub q: DeviceView<'a, T, 4>,
    /// Keys, as queries. As a rule their norms are 1.
    pub k: DeviceView<'a, T, 4>,
    /// Values (batch, tokens, heads, value channels).
    pub v: DeviceView<'a, T, 4>,
    /// Logarithms of the decays: (batch, tokens, heads), with key channels as a fourth axis for
    /// KDA.
    pub gates: DeviceView<'a, f32, GATES>,
    /// Rates β (batch, tokens, heads).
    pub rates: DeviceView<'a, f32, 3>,
}

impl<T: Element, const GATES: usize> DeltaInputs<'_, T, GATES> {
    /// Checks the shapes. Returns batch, tokens, heads, key channels and value channels.
    #[track_caller]
    pub(super) fn check(&self, name: &str, out: [usize; 4]) -> ct::Result<[usize; 5]> {
        let ([batch, tokens, key_heads, keys], [_, _, heads, values]) = (self.q.shape(), self.v.shape());
        require(self.k.shape() == self.q.shape(), || {
            format!("{name}: queries {:?} and keys {:?} differ", self.q.shape(), self.k.shape())
        })?;
        require(self.v.shape()[..2] == [batch, tokens] && key_heads > 0 && heads.is_multiple_of(key_heads), || {
            format!("{name}: values {:?} do not fit the keys {:?}", self.v.shape(), self.k.shape())
        })?;
        require(self.rates.shape() == [batch, tokens, heads], || {
            format!("{name}: rates are of shape {:?}, not {:?}", self.rates.shape(), [batch, tokens, heads])
        })?;
        let gates = [batch, tokens, heads, keys];
        require(self.gates.shape()[..] == gates[..GATES], || {
            format!("{name}: gates are of shape {:?}, not {:?}", self.gates.shape(), &gates[..GATES])
        })?;
        require(out == self.v.shape(), || format!("{name}: the result is of shape {out:?}, not {:?}", self.v.shape()))?;
        require(keys <= 256, || format!("{name}: {keys} key channels, and 256 is the largest number"))?;
        Ok([batch, tokens, heads, keys, values])
    }
}
