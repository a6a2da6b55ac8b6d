//! The signatures that are accepted, for `jsonwebtoken`: it reads tokens, RustCrypto does the arithmetic.
//!
//! Invariants:
//! - HS256, ES256 and EdDSA, and nothing else. There is no RSA here, and nothing that signs.
//! - A key is of one algorithm. Its bytes are checked when it is read, and a mismatch is an error, never another algorithm.

use ed25519_dalek::{Signature as EdSignature, VerifyingKey as EdKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error as TokenError, ErrorKind};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey};
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{Signature as EcSignature, VerifyingKey as EcKey};
use sha2::Sha256;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has `jsonwebtoken` use these. Once for a process; again is no harm.
pub(super) fn install() {
    PROVIDER.install_default().ok();
}

/// Whether bytes are a key that a signature of this algorithm can be checked with.
pub(super) fn is_key(algorithm: Algorithm, key: &DecodingKey) -> bool {
    verifier(&algorithm, key).is_ok()
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, TokenError> {
    if key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    let bytes = key.try_get_as_bytes()?;
    match algorithm {
        Algorithm::HS256 => match Hmac::new_from_slice(bytes) {
            Ok(mac) => Ok(Box::new(Hs256(mac))),
            Err(_) => Err(ErrorKind::InvalidKeyFormat.into()),
        },
        Algorithm::ES256 => match EcKey::from_sec1_bytes(bytes) {
            Ok(key) => Ok(Box::new(Es256(key))),
            Err(_) => Err(ErrorKind::InvalidEcdsaKey.into()),
        },
        Algorithm::EdDSA => match EdKey::try_from(bytes) {
            Ok(key) if !key.is_weak() => Ok(Box::new(EdDsa(key))),
            _ => Err(ErrorKind::InvalidEddsaKey.into()),
        },
        _ => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

struct Hs256(Hmac<Sha256>);
struct Es256(EcKey);
struct EdDsa(EdKey);

impl Verifier<Vec<u8>> for Hs256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        // In constant time.
        self.0.clone().chain_update(message).verify_slice(signature).map_err(|_| Error::new())
    }
}

impl Verifier<Vec<u8>> for Es256 {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        let signature = EcSignature::from_slice(signature).map_err(|_| Error::new())?;
        self.0.verify(message, &signature).map_err(|_| Error::new())
    }
}

impl Verifier<Vec<u8>> for EdDsa {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        let signature = EdSignature::from_slice(signature).map_err(|_| Error::new())?;
        self.0.verify_strict(message, &signature).map_err(|_| Error::new())
    }
}

impl JwtVerifier for Hs256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl JwtVerifier for Es256 {
    fn algorithm(&self) -> Algorithm {
        Algorithm::ES256
    }
}

impl JwtVerifier for EdDsa {
    fn algorithm(&self) -> Algorithm {
        Algorithm::EdDSA
    }
}
