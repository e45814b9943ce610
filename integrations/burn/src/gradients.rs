//! Backward passes, by operations of the back end inside of `Autodiff`.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind, unary};

use crate::CutletOps;

/// The mean over the last axis.
fn mean<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let last = x.shape().num_dims() - 1;
    B::float_mean_dim(x, last)
}

#[derive(Debug)]
struct SoftmaxBackward;

impl<B: CutletOps> Backward<B, 1> for SoftmaxBackward {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let y = ops.state;
        unary::<B, _>(ops.parents, ops.node, grads, |grad| {
            // y (grad - Σ grad y)
            let last = y.shape().num_dims() - 1;
            let sum = B::float_sum_dim(B::float_mul(grad.clone(), y.clone()), last);
            B::float_mul(y, B::float_sub(grad, sum))
        });
    }
}

#[derive(Debug)]
struct RmsNormBackward;

impl<B: CutletOps> Backward<B, 2> for RmsNormBackward {
    type State = (FloatTensor<B>, FloatTensor<B>, f32);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let ((x, weight, epsilon), [of_x, of_weight]) = (ops.state, ops.parents);
        let grad = grads.consume::<B>(&ops.node);
        let squares = mean::<B>(B::float_mul(x.clone(), x.clone()));
        let scale = B::float_recip(B::float_sqrt(B::float_add_scalar(squares, epsilon.into())));
        let normal = B::float_mul(x, scale.clone());
        if let Some(node) = of_weight {
            let mut sum = B::float_mul(grad.clone(), normal.clone());
            let shape = sum.shape();
            for d in 0..shape.num_dims() - 1 {
                sum = B::float_sum_dim(sum, d);
            }
            grads.register::<B>(node.id, B::float_reshape(sum, weight.shape()));
        }
        if let Some(node) = of_x {
            let mut shape = vec![1; grad.shape().num_dims()];
            *shape.last_mut().expect("an axis") = weight.shape()[0];
            let scaled = B::float_mul(grad, B::float_reshape(weight, shape.into()));
            let along = B::float_mul(normal.clone(), mean::<B>(B::float_mul(scaled.clone(), normal)));
            grads.register::<B>(node.id, B::float_mul(B::float_sub(scaled, along), scale));
        }
    }
}

impl<B: CutletOps, C: CheckpointStrategy> CutletOps for Autodiff<B, C> {
    fn cutlet_softmax(x: FloatTensor<Self>) -> FloatTensor<Self> {
        match SoftmaxBackward.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let y = B::cutlet_softmax(x.into_primitive());
                prepared.finish(y.clone(), y)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(B::cutlet_softmax(x.into_primitive())),
        }
    }

    fn cutlet_rms_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, epsilon: f32) -> FloatTensor<Self> {
        match RmsNormBackward.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let state = (x.primitive().clone(), weight.primitive().clone(), epsilon);
                prepared.finish(state, B::cutlet_rms_norm(x.into_primitive(), weight.into_primitive(), epsilon))
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(B::cutlet_rms_norm(x.into_primitive(), weight.into_primitive(), epsilon))
            }
        }
    }
}
