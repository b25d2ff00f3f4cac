"""Operations about calls that leave: destinations of webhooks, callbacks of their receivers, and notifications."""
