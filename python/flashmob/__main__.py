"""`python -m flashmob` is the flashmob command."""

from flashmob.cli import main

if __name__ == "__main__":
    main()
