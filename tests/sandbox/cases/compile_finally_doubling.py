def zigzag(xs):
    try: a = 1
    finally:
        try: a = 1
        finally:
            try: a = 1
            finally:
                try: a = 1
                finally:
                    try: a = 1
                    finally:
                        try: a = 1
                        finally:
                            try: a = 1
                            finally:
                                try: a = 1
                                finally:
                                    try: a = 1
                                    finally:
                                        try: a = 1
                                        finally:
                                            try: a = 1
                                            finally:
                                                try: a = 1
                                                finally:
                                                    try: a = 1
                                                    finally:
                                                        try: a = 1
                                                        finally:
                                                            try: a = 1
                                                            finally:
                                                                try: a = 1
                                                                finally:
                                                                    try: a = 1
                                                                    finally:
                                                                        try: a = 1
                                                                        finally:
                                                                            a = 2; a = 3; a = 4; a = 5
    return 7
