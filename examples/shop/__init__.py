"""A small shop: an HTTP application that takes orders, and workers that write receipts.

`app.py` and `worker.py` are the two programs. `relay.py` tells NATS of orders, and `billing.py` is somebody else's
service that hears of them there. `python -m examples.demo` runs them all.

    export SHOP_DATABASE_URL=postgresql+asyncpg://localhost/shop
    uvicorn examples.shop.app:app
    faststream run examples.shop.worker:app

    export SHOP_NATS_URL=nats://localhost:4222
    faststream run examples.shop.relay:app
    faststream run examples.shop.billing:app
"""
