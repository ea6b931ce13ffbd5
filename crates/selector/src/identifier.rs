//! Which characters make an identifier, and which names a selector may use.

/// The header fields that a selector may refer to (Jakarta Messaging 3.1, 3.8.1.1).
pub(crate) const HEADER_FIELDS: [&str; 6] =
    ["JMSDeliveryMode", "JMSPriority", "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"];

/// Whether `name` is in the part of the `JMS` name space that selectors can see.
pub(crate) fn is_allowed_name(name: &str) -> bool {
    match name.strip_prefix("JMS") {
        None => true,
        Some(rest) => rest.starts_with(['X', '_']) || HEADER_FIELDS.contains(&name),
    }
}

/// Whether an identifier can begin with `c`: `Character.isJavaIdentifierStart`.
///
/// That is a letter (L*, Nl), a currency sign (Sc) or a connector (Pc). Unicode's own identifier property differs
/// from L* and Nl in the few characters listed here.
pub(crate) fn is_start(c: char) -> bool {
    match c {
        'A'..='Z' | 'a'..='z' | '_' | '$' => true,
        '\0'..='\u{7f}' => false,
        '\u{1885}' | '\u{1886}' | '\u{2118}' | '\u{212e}' => false,
        '\u{37a}' | '\u{e33}' | '\u{eb3}' | '\u{2e2f}' | '\u{ff9e}' | '\u{ff9f}' => true,
        _ => is_arabic_form(c) || is_connector(c) || is_currency(c) || unicode_ident::is_xid_start(c),
    }
}

/// Whether an identifier can go on with `c`: `Character.isJavaIdentifierPart`.
///
/// That is a start character, a digit (Nd), a mark (Mn, Mc) or an ignorable character (some controls, Cf).
pub(crate) fn is_part(c: char) -> bool {
    match c {
        '0'..='9' => true,
        '\0'..='\u{8}' | '\u{e}'..='\u{1b}' | '\u{7f}'..='\u{9f}' => true,
        '\0'..='\u{7e}' => is_start(c),
        '\u{b7}' | '\u{387}' | '\u{1369}'..='\u{1371}' | '\u{19da}' => false,
        '\u{2118}' | '\u{212e}' | '\u{30fb}' | '\u{ff65}' => false,
        _ => unicode_ident::is_xid_continue(c) || is_start(c) || is_format(c),
    }
}

/// Arabic presentation forms that are letters, though normalization makes them begin with a space.
fn is_arabic_form(c: char) -> bool {
    matches!(
        c,
        '\u{fc5e}'
            ..='\u{fc63}'
                | '\u{fdfa}'
                | '\u{fdfb}'
                | '\u{fe70}'
                | '\u{fe72}'
                | '\u{fe74}'
                | '\u{fe76}'
                | '\u{fe78}'
                | '\u{fe7a}'
                | '\u{fe7c}'
                | '\u{fe7e}'
    )
}

/// General category Pc, beyond ASCII.
fn is_connector(c: char) -> bool {
    matches!(
        c,
        '\u{203f}' | '\u{2040}' | '\u{2054}' | '\u{fe33}' | '\u{fe34}' | '\u{fe4d}'..='\u{fe4f}' | '\u{ff3f}'
    )
}

/// General category Sc, beyond ASCII.
fn is_currency(c: char) -> bool {
    matches!(c, '\u{a2}'..='\u{a5}' | '\u{58f}' | '\u{60b}' | '\u{7fe}' | '\u{7ff}' | '\u{9f2}' | '\u{9f3}'
        | '\u{9fb}' | '\u{af1}' | '\u{bf9}' | '\u{e3f}' | '\u{17db}' | '\u{20a0}'..='\u{20c1}' | '\u{a838}'
        | '\u{fdfc}' | '\u{fe69}' | '\u{ff04}' | '\u{ffe0}' | '\u{ffe1}' | '\u{ffe5}' | '\u{ffe6}'
        | '\u{11fdd}'..='\u{11fe0}' | '\u{1e2ff}' | '\u{1ecb0}')
}

/// General category Cf: formatting characters, which Java allows inside an identifier.
fn is_format(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}'
        | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
        | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'
        | '\u{e0020}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_and_part_follow_java() {
        for c in ['a', 'Z', '_', '$', 'é', 'ß', '名', '€', '¥', 'Ⅷ', '\u{203f}', '\u{fe70}', 'ª'] {
            assert!(is_start(c) && is_part(c), "{c:?}");
        }
        for c in ['0', '9', '\u{301}', '٣', '\0', '\u{200d}', '\u{ad}', '\u{7f}'] {
            assert!(!is_start(c) && is_part(c), "{c:?}");
        }
        for c in ['-', '.', ' ', '\t', '\n', '\'', '"', '#', '@', '·', '℮', '\u{30fb}', '😀', '\u{a0}', '½']
        {
            assert!(!is_start(c) && !is_part(c), "{c:?}");
        }
    }

    #[test]
    fn of_the_jms_names_six_fields_and_two_prefixes_are_visible() {
        for name in ["JMSType", "JMSPriority", "JMSXGroupID", "JMS_AMQP_TTL", "jmsFoo", "JM", "order"] {
            assert!(is_allowed_name(name), "{name}");
        }
        for name in ["JMS", "JMSDestination", "JMSExpiration", "JMSReplyTo", "JMSRedelivered", "JMSPriorit"] {
            assert!(!is_allowed_name(name), "{name}");
        }
    }
}
