//! Implements the attribute `instrument` of the crate `tprof`, which has it with the feature
//! `macros`.
//!
//! The macro doesn't need a parser, so the crate has no dependencies. It only looks at the
//! function's tokens: the last group in braces is the body, and the word after `fn` is the name.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Makes calls of the function spans: `#[tprof::instrument]`, or with the arguments of
/// `tprof::span!`, `#[tprof::instrument(category: tprof::Category::Io, "read", bytes = bytes)]`. By
/// default, the span has the name of the function. In an `async fn` each poll is a span, whose only
/// argument `task` is the number of the call.
#[proc_macro_attribute]
pub fn instrument(attribute: TokenStream, item: TokenStream) -> TokenStream {
    match expand(attribute, item) {
        Ok(function) => function,
        Err(why) => format!("compile_error!({why:?});").parse().unwrap_or_default(),
    }
}

fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream, &'static str> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        return Err("#[instrument] is for functions with a body");
    };
    if body.delimiter() != Delimiter::Brace {
        return Err("#[instrument] is for functions with a body");
    }
    let is_word =
        |token: &TokenTree, word| matches!(token, TokenTree::Ident(is) if is.to_string() == word);
    let Some(at) = tokens.iter().position(|token| is_word(token, "fn")) else {
        return Err("#[instrument] is for functions");
    };
    let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else {
        return Err("#[instrument] is for functions with a name");
    };
    let words = &tokens[..at];
    if words.iter().any(|token| is_word(token, "const")) {
        return Err(
            "a `const fn` may run while the program is compiled: it cannot be instrumented",
        );
    }
    let is_async = words.iter().any(|token| is_word(token, "async"));
    let Call { named, has_arguments } = Call::of(attribute, &name.to_string());
    if is_async && has_arguments {
        return Err("an async function's polls have no arguments but `task`");
    }
    let inner = if is_async { polled(named, body.stream()) } else { called(named, body) };
    let mut whole = Group::new(Delimiter::Brace, inner);
    whole.set_span(Span::call_site());
    tokens.push(whole.into());
    Ok(tokens.into_iter().collect())
}

/// Arguments for `span!`.
struct Call {
    named: TokenStream,
    has_arguments: bool,
}

impl Call {
    /// Parses `category: …`, a name, and arguments, separated by commas.
    fn of(attribute: TokenStream, function: &str) -> Call {
        let mut parts: Vec<Vec<TokenTree>> = vec![Vec::new()];
        for token in attribute {
            match (&token, parts.last_mut()) {
                (TokenTree::Punct(mark), _) if mark.as_char() == ',' => parts.push(Vec::new()),
                (_, Some(last)) => last.push(token),
                _ => {}
            }
        }
        parts.retain(|part| !part.is_empty());
        let marked = |part: &[TokenTree], by: char| {
            matches!(part, [TokenTree::Ident(_), TokenTree::Punct(mark), ..]
                if mark.as_char() == by && mark.spacing() == Spacing::Alone)
        };
        let has_category = parts.first().is_some_and(|part| marked(part, ':'));
        let place = usize::from(has_category);
        if parts.get(place).map_or(true, |part| marked(part, '=')) {
            parts.insert(place, vec![Literal::string(function).into()]);
        }
        let has_arguments = parts.len() > place + 1;
        let mut named = TokenStream::new();
        for part in parts {
            named.extend(part);
            named.extend([TokenTree::from(Punct::new(',', Spacing::Alone))]);
        }
        Call { named, has_arguments }
    }
}

/// Returns the tokens `::tprof::NAME!(…)`.
fn invocation(name: &str, arguments: TokenStream) -> TokenStream {
    let mut all: TokenStream = "::tprof::".parse().unwrap_or_default();
    all.extend([
        TokenTree::from(Ident::new(name, Span::call_site())),
        Punct::new('!', Spacing::Alone).into(),
        Group::new(Delimiter::Parenthesis, arguments).into(),
    ]);
    all
}

/// Returns `let _tprof_span = ::tprof::span!(…); { … }` with the body unchanged.
fn called(named: TokenStream, body: Group) -> TokenStream {
    let span = Ident::new("_tprof_span", Span::mixed_site());
    let mut all = TokenStream::new();
    all.extend([
        TokenTree::from(Ident::new("let", Span::call_site())),
        span.into(),
        Punct::new('=', Spacing::Alone).into(),
    ]);
    all.extend(invocation("span", named));
    all.extend([TokenTree::from(Punct::new(';', Spacing::Alone)), body.into()]);
    all
}

/// Returns `::tprof::__polled!(async move { … }, …).await`.
fn polled(named: TokenStream, body: TokenStream) -> TokenStream {
    let mut arguments = TokenStream::new();
    arguments.extend([
        TokenTree::from(Ident::new("async", Span::call_site())),
        Ident::new("move", Span::call_site()).into(),
        Group::new(Delimiter::Brace, body).into(),
        Punct::new(',', Spacing::Alone).into(),
    ]);
    arguments.extend(named);
    let mut all = invocation("__polled", arguments);
    all.extend([
        TokenTree::from(Punct::new('.', Spacing::Alone)),
        Ident::new("await", Span::call_site()).into(),
    ]);
    all
}
