//! The macros. Each creates one static name per place in the program.

/// Begins a [`Span`](crate::Span) of this thread, with up to four arguments.
///
/// The name must be a constant. Arguments can be integers, floats, booleans or texts.
///
/// ```
/// let (batch, bytes) = (7_u32, 1_usize << 20);
/// let _epoch = tprof::span!("epoch");
/// let _load = tprof::span!("load", batch = batch, bytes = bytes);
/// let _sum = tprof::span!(category: tprof::Category::Compute, "sum", exact = true);
/// ```
#[cfg(not(feature = "off"))]
#[macro_export]
macro_rules! span {
    (category: $category:expr, $name:expr $(, $($rest:tt)*)?) => {{
        static NAME: $crate::Name = {
            const BYTES: usize = $crate::joined_bytes($name, $category);
            static TEXT: [u8; BYTES] = $crate::joined($name, $category);
            $crate::Name::of_bytes(&TEXT)
        };
        $crate::__described!($crate::Span::enter(&NAME) $(, $($rest)*)?)
    }};
    ($name:expr $(, $($rest:tt)*)?) => {{
        static NAME: $crate::Name = $crate::Name::new($name);
        $crate::__described!($crate::Span::enter(&NAME) $(, $($rest)*)?)
    }};
}

/// Does nothing, because the feature `off` is on.
#[cfg(feature = "off")]
#[macro_export]
macro_rules! span {
    (category: $category:expr, $name:expr $(, $key:ident = $value:expr)* $(,)?) => {{
        if false {
            let _ = ($category, $name, $(&$value),*);
        }
        $crate::Span::none()
    }};
    ($name:expr $(, $key:ident = $value:expr)* $(,)?) => {{
        if false {
            let _ = ($name, $(&$value),*);
        }
        $crate::Span::none()
    }};
}

#[cfg(not(feature = "off"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __described {
    ($span:expr $(,)?) => {
        $span
    };
    ($span:expr, $first:ident = $value:expr $(, $key:ident = $other:expr)* $(,)?) => {{
        const _: () = assert!(
            [stringify!($first) $(, stringify!($key))*].len() <= 4,
            "a span takes four arguments at most: add others by `record`"
        );
        static KEYS: $crate::Name =
            $crate::Name::new(concat!(stringify!($first) $(, "\x1f", stringify!($key))*));
        let span = $span;
        if span.is_recorded() {
            span.describe(&KEYS, &[$crate::Value::from($value) $(, $crate::Value::from($other))*]);
        }
        span
    }};
}

/// Records an instant: `tprof::mark!("loss is not a number")`.
#[cfg(not(feature = "off"))]
#[macro_export]
macro_rules! mark {
    ($name:expr) => {{
        static NAME: $crate::Name = $crate::Name::new($name);
        $crate::mark_at(&NAME);
    }};
}

/// Does nothing, because the feature `off` is on.
#[cfg(feature = "off")]
#[macro_export]
macro_rules! mark {
    ($name:expr) => {{
        if false {
            let _ = $name;
        }
    }};
}

/// Returns a [`Gauge`](crate::Gauge) with a constant name: `tprof::gauge!("loss").set(0.4)`.
#[macro_export]
macro_rules! gauge {
    ($name:expr) => {{
        static NAME: $crate::Name = $crate::Name::new($name);
        $crate::Gauge::of(&NAME)
    }};
}

/// Returns a [`Counter`](crate::Counter) with a constant name:
/// `tprof::counter!("tokens").add(512)`.
#[macro_export]
macro_rules! counter {
    ($name:expr) => {{
        static NAME: $crate::Name = $crate::Name::new($name);
        $crate::Counter::of(&NAME)
    }};
}

/// Returns a [`Pool`](crate::Pool) with a constant name: `tprof::pool!("kv-cache").took(block,
/// bytes)`.
#[macro_export]
macro_rules! pool {
    ($name:expr) => {{
        static NAME: $crate::Name = $crate::Name::new($name);
        $crate::Pool::of(&NAME)
    }};
}

#[cfg(not(feature = "off"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __polled {
    ($future:expr, category: $category:expr, $name:expr $(,)?) => {{
        static NAME: $crate::Name = {
            const BYTES: usize = $crate::joined_bytes($name, $category);
            static TEXT: [u8; BYTES] = $crate::joined($name, $category);
            $crate::Name::of_bytes(&TEXT)
        };
        $crate::Polled::new($future, &NAME)
    }};
    ($future:expr, $name:expr $(,)?) => {{
        static NAME: $crate::Name = $crate::Name::new($name);
        $crate::Polled::new($future, &NAME)
    }};
}

#[cfg(feature = "off")]
#[doc(hidden)]
#[macro_export]
macro_rules! __polled {
    ($future:expr, $($named:tt)*) => {
        $future
    };
}
