//! Results and gradients, compared with those of burn's own operations.

use burn::tensor::{Device, Distribution, Tensor, Tolerance, activation};
use cutlet_burn::{rms_norm, softmax};

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

fn close<const D: usize>(got: Tensor<D>, want: Tensor<D>) {
    got.into_data().assert_approx_eq::<f32>(&want.into_data(), Tolerance::absolute(1e-4));
}

#[test]
fn tensors_of_any_strides() {
    let device = Device::flex();
    let x = random([3, 5, 40], &device);
    for x in [x.clone(), x.clone().swap_dims(0, 1), x.clone().swap_dims(1, 2), x.clone().narrow(2, 3, 30), x.flip([1])]
    {
        close(softmax(x.clone()), activation::softmax(x, 2));
    }
    let x = random([1, 5, 7], &device).expand([4, 5, 7]);
    close(softmax(x.clone()), activation::softmax(x, 2));
    let x = random([2, 3, 2, 3, 8], &device);
    close(softmax(x.clone()), activation::softmax(x, 4));
    let x = random([9], &device);
    close(softmax(x.clone()), activation::softmax(x, 0));
}

#[test]
fn gradients() {
    let device = Device::flex().autodiff();
    let (x, weight, factor) = (random([3, 5, 40], &device), random([40], &device), random([3, 5, 40], &device));
    let (x, weight) = (x.require_grad(), weight.require_grad());
    let theirs = |x: Tensor<3>, weight: Tensor<1>| {
        let scale = (x.clone().powi_scalar(2).mean_dim(2) + 1e-3).sqrt();
        activation::softmax(x / scale * weight.unsqueeze(), 2)
    };
    let ours = softmax(rms_norm(x.clone(), weight.clone(), 1e-3));
    let wanted = theirs(x.clone(), weight.clone());
    close(ours.clone().inner(), wanted.clone().inner());
    let [got, want] = [ours, wanted].map(|y| (y * factor.clone()).sum().backward());
    close(x.grad(&got).unwrap(), x.grad(&want).unwrap());
    close(weight.grad(&got).unwrap(), weight.grad(&want).unwrap());
}
