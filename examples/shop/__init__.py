"""A small shop: an HTTP application that takes orders, and workers that write receipts.

`app.py` and `worker.py` are the two programs. `python -m examples.demo` runs both.

    export SHOP_DATABASE_URL=postgresql+asyncpg://localhost/shop
    uvicorn examples.shop.app:app
    faststream run examples.shop.worker:app
"""
