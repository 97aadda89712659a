//! Streams the output of a child process as the body of an answer, piece by piece.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Body as Pieces, Frame, SizeHint};

use crate::work::Output;

/// Body that reads an output as it is sent.
struct Text {
    output: Arc<Output>,
    offset: u64,
}

impl Pieces for Text {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.offset >= self.output.len() {
            return Poll::Ready(None);
        }
        // This may block on a file, but the child has just written it: the page cache has it, so no
        // disk is read.
        let piece = self.output.piece(self.offset);
        Poll::Ready(Some(piece.map(|piece| {
            self.offset += piece.len() as u64;
            Frame::data(piece)
        })))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.output.len() - self.offset)
    }
}

/// Returns an answer with this content type.
pub fn of(output: Arc<Output>, kind: &'static str) -> Response {
    let length = output.len();
    let body = Body::new(Text { output, offset: 0 });
    ([(CONTENT_TYPE, kind.to_owned()), (CONTENT_LENGTH, length.to_string())], body).into_response()
}
