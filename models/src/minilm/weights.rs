//! Tensors of a file of safetensors, copied to a device in the element type of the model.

use std::error::Error;

use cutlet as ct;
use cutlet::element::f16;
use cutlet::{Device, DeviceArray};
use cutlet_kernels::Number;
use safetensors::{Dtype, SafeTensors};

use super::parameters::{Linear, Norm};

/// A file and the device of its copies.
pub struct Weights<'a> {
    device: Device,
    file: SafeTensors<'a>,
}

impl<'a> Weights<'a> {
    /// Reads the header of a file.
    pub fn new(device: Device, bytes: &'a [u8]) -> Result<Weights<'a>, Box<dyn Error>> {
        Ok(Weights { device, file: SafeTensors::deserialize(bytes)? })
    }

    /// Returns the elements of a tensor whose rows have `width` elements.
    pub fn rows(&self, name: &str, width: usize) -> Result<Vec<f32>, Box<dyn Error>> {
        let tensor = self.file.tensor(name)?;
        let data = tensor.data();
        let values: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => data.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
            Dtype::F16 => data.as_chunks::<2>().0.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32()).collect(),
            other => return Err(format!("{name} has elements of {other:?}, not of F32 or F16").into()),
        };
        match tensor.shape().last() == Some(&width) {
            true => Ok(values),
            false => Err(format!("{name} is of shape {:?}, not with rows of {width}", tensor.shape()).into()),
        }
    }

    /// Returns the elements of a tensor of this shape.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Box<dyn Error>> {
        let values = self.rows(name, shape.last().copied().unwrap_or(1))?;
        match values.len() == shape.iter().product::<usize>() {
            true => Ok(values),
            false => Err(format!("{name} has {} elements, not the shape {shape:?}", values.len()).into()),
        }
    }

    /// Copies numbers to the device.
    pub fn copy<T: Number, const R: usize>(&self, from: &[f32], shape: [usize; R]) -> ct::Result<DeviceArray<T, R>> {
        let values: Vec<T> = from.iter().map(|&x| T::from_f64(f64::from(x))).collect();
        self.device.array(&values, shape)
    }

    /// Copies a tensor to the device.
    pub fn array<T: Number, const R: usize>(
        &self,
        name: &str,
        shape: [usize; R],
    ) -> Result<DeviceArray<T, R>, Box<dyn Error>> {
        Ok(self.copy(&self.tensor(name, &shape)?, shape)?)
    }

    /// Copies products of equal inputs, one after another along the outputs.
    pub fn linear<T: Number>(&self, names: &[String], shape: [usize; 2]) -> Result<Linear<T>, Box<dyn Error>> {
        let [outputs, inputs] = shape;
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for name in names {
            weight.extend(self.tensor(&format!("{name}.weight"), &shape)?);
            bias.extend(self.tensor(&format!("{name}.bias"), &[outputs])?);
        }
        let outputs = outputs * names.len();
        Ok(Linear { weight: self.copy(&weight, [outputs, inputs])?, bias: self.copy(&bias, [outputs])? })
    }

    /// Copies weight and bias of a layer norm.
    pub fn norm<T: Number>(&self, name: &str, width: usize) -> Result<Norm<T>, Box<dyn Error>> {
        let [weight, bias] = ["weight", "bias"].map(|part| self.array(&format!("{name}.{part}"), [width]));
        Ok(Norm { weight: weight?, bias: bias? })
    }
}
